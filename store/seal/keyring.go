// Package seal encrypts what the store keeps secret, under a keyring whose versions can be exchanged one by one.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

const (
	keySize  = 32
	redacted = "[keyring]"
)

// Keyring holds encryption keys by version. The newest one seals, every one opens. It prints as "[keyring]" under every
// verb, in JSON and in logs. Safe for concurrent use.
type Keyring struct {
	keys   map[uint16]cipher.AEAD
	newest uint16
}

// ParseKeyring reads "1:BASE64,2:BASE64", each key being 32 bytes in standard base64, padded or not. It reports every
// mistake at once, by position and version, and never repeats what it read: it may be a key.
func ParseKeyring(text string) (*Keyring, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the keyring is empty, want VERSION:BASE64[,VERSION:BASE64]")
	}
	ring := &Keyring{keys: make(map[uint16]cipher.AEAD)}
	listed := make(map[uint16]bool)
	var mistakes []error
	for i, entry := range strings.Split(text, ",") {
		version, encoded, err := splitEntry(entry)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("entry %d: %w", i+1, err))
			continue
		}
		if listed[version] {
			mistakes = append(mistakes, fmt.Errorf("entry %d (version %d): the version is listed twice", i+1, version))
			continue
		}
		listed[version] = true
		aead, err := decodeKey(encoded)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("entry %d (version %d): %w", i+1, version, err))
			continue
		}
		ring.keys[version] = aead
		ring.newest = max(ring.newest, version)
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return ring, nil
}

func splitEntry(entry string) (version uint16, encoded string, err error) {
	entry = strings.TrimSpace(entry)
	if entry == "" {
		return 0, "", errors.New("it is empty")
	}
	number, encoded, found := strings.Cut(entry, ":")
	if !found {
		return 0, "", errors.New("it has no version, want VERSION:BASE64")
	}
	parsed, err := strconv.ParseUint(strings.TrimSpace(number), 10, 16)
	if err != nil || parsed == 0 {
		return 0, "", fmt.Errorf("its version is not a number from 1 to %d", math.MaxUint16)
	}
	return uint16(parsed), strings.TrimSpace(encoded), nil
}

func decodeKey(encoded string) (cipher.AEAD, error) {
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(encoded, "=") {
		encoding = base64.StdEncoding
	}
	key, err := encoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("the key is not base64") // the decoder's own text would say what it read
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("the key has %d bytes, want %d", len(key), keySize)
	}
	return newAEAD(key), nil
}

func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil { // unreachable: the length was checked
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil { // unreachable: AES has the block size that GCM needs
		panic(err)
	}
	return aead
}

// GenerateKeyring returns the text of a fresh keyring of one key.
func GenerateKeyring() string {
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	return "1:" + base64.StdEncoding.EncodeToString(key)
}

// Newest is the version that seals.
func (k *Keyring) Newest() int { return int(k.newest) }

// Format prints no key, whatever the verb.
func (k Keyring) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }

// MarshalText keeps the keys out of JSON and of everything else that marshals text.
func (k Keyring) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue keeps the keys out of logs.
func (k Keyring) LogValue() slog.Value { return slog.StringValue(redacted) }
