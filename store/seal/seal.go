package seal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// What is sealed starts with a header: one byte for the format, the key's version in two, the nonce in twelve. The
// ciphertext and its tag follow.
const (
	formatGCM  = 1
	nonceStart = 3
	headerSize = nonceStart + 12
)

// ErrTampered says that sealed bytes are not what was sealed: changed, cut, or sealed for another row or with another
// key of the same version.
var ErrTampered = errors.New("sealed data does not match its key and associated data")

// ErrUnknownVersion says that the keyring lacks the version that something was sealed with.
type ErrUnknownVersion struct{ Version int }

func (e ErrUnknownVersion) Error() string {
	return fmt.Sprintf("the keyring has no version %d", e.Version)
}

// Seal encrypts with the newest key. Only the same aad opens it again.
func (k *Keyring) Seal(plain, aad []byte) []byte {
	aead := k.keys[k.newest]
	sealed := make([]byte, headerSize, headerSize+len(plain)+aead.Overhead())
	sealed[0] = formatGCM
	binary.BigEndian.PutUint16(sealed[1:], k.newest)
	rand.Read(sealed[nonceStart:]) // never fails
	return aead.Seal(sealed, sealed[nonceStart:headerSize], plain, withHeader(sealed, aad))
}

// Open decrypts what Seal returned. It fails with ErrUnknownVersion or ErrTampered.
func (k *Keyring) Open(sealed, aad []byte) ([]byte, error) {
	version, err := k.Version(sealed)
	if err != nil {
		return nil, err
	}
	aead, found := k.keys[uint16(version)]
	if !found {
		return nil, ErrUnknownVersion{Version: version}
	}
	plain, err := aead.Open(nil, sealed[nonceStart:headerSize], sealed[headerSize:], withHeader(sealed, aad))
	if err != nil {
		return nil, ErrTampered
	}
	return plain, nil
}

// Version says which key sealed it, whether the keyring has that key or not. ErrTampered when it is not sealed at all.
func (k *Keyring) Version(sealed []byte) (int, error) {
	if len(sealed) < headerSize || sealed[0] != formatGCM {
		return 0, ErrTampered
	}
	return int(binary.BigEndian.Uint16(sealed[1:])), nil
}

// withHeader authenticates the header together with aad. The header's length is fixed, so no two pairs look the same.
func withHeader(sealed, aad []byte) []byte {
	return append(sealed[:headerSize:headerSize], aad...)
}
