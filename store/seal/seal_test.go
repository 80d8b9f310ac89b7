package seal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// sealedBefore was sealed once with version 1 of key(1), from "plain" for "row": what is stored must open for ever.
const sealedBefore = "01000115b0d130070ec7cbc39b4fef58e2032f2bed34ae6c36003687a01e24a5f1494faf"

func TestOpenWhatWasSealedBefore(t *testing.T) {
	sealed, err := hex.DecodeString(sealedBefore)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := mustParse(t, "1:"+key(1)).Open(sealed, []byte("row"))
	if err != nil || string(plain) != "plain" {
		t.Errorf("opened %q, %v", plain, err)
	}
}

func TestSealAndOpen(t *testing.T) {
	ring := mustParse(t, "1:"+key(1)+",2:"+key(2))
	for _, plain := range []string{"", "sk-secret", strings.Repeat("x", 1<<16)} {
		for _, aad := range []string{"", "row"} {
			sealed := ring.Seal([]byte(plain), []byte(aad))
			if plain != "" && bytes.Contains(sealed, []byte(plain)) {
				t.Fatal("the plain text is in what was sealed")
			}
			opened, err := ring.Open(sealed, []byte(aad))
			if err != nil || string(opened) != plain {
				t.Errorf("opened %d bytes, %v; want %d", len(opened), err, len(plain))
			}
			if version, err := ring.Version(sealed); version != 2 || err != nil {
				t.Errorf("version is %d, %v; want 2", version, err)
			}
		}
	}
}

func TestSealNeverRepeatsANonce(t *testing.T) {
	ring := mustParse(t, GenerateKeyring())
	if bytes.Equal(ring.Seal([]byte("plain"), nil), ring.Seal([]byte("plain"), nil)) {
		t.Error("sealing twice gave the same bytes")
	}
}

// TestRotation walks the versions as an operator does: add, seal again, remove.
func TestRotation(t *testing.T) {
	old, both, after := mustParse(t, "1:"+key(1)), mustParse(t, "1:"+key(1)+",2:"+key(2)), mustParse(t, "2:"+key(2))
	first := old.Seal([]byte("plain"), nil)

	plain, err := both.Open(first, nil)
	if err != nil {
		t.Fatalf("with both versions: %v", err)
	}
	second := both.Seal(plain, nil)

	var unknown ErrUnknownVersion
	if _, err := old.Open(second, nil); !errors.As(err, &unknown) || unknown.Version != 2 {
		t.Errorf("the old keyring opens the new version: %v", err)
	}
	if _, err := after.Open(first, nil); !errors.As(err, &unknown) || unknown.Version != 1 {
		t.Errorf("the new keyring opens the old version: %v", err)
	}
	if version, err := after.Version(first); version != 1 || err != nil {
		t.Errorf("the version that the keyring lacks is %d, %v; want 1", version, err)
	}
	if plain, err := after.Open(second, nil); err != nil || string(plain) != "plain" {
		t.Errorf("opened %q, %v", plain, err)
	}
}

func TestOpenRefusesEveryChange(t *testing.T) {
	ring := mustParse(t, "1:"+key(1))
	aad := []byte("row")
	sealed := ring.Seal([]byte("plain"), aad)

	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := ring.Open(changed, aad)
		var unknown ErrUnknownVersion
		isVersion := i == 1 || i == 2
		if isVersion && !errors.As(err, &unknown) || !isVersion && !errors.Is(err, ErrTampered) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for length := range sealed {
		if _, err := ring.Open(sealed[:length], aad); !errors.Is(err, ErrTampered) {
			t.Errorf("cut to %d bytes: %v", length, err)
		}
	}
	if _, err := ring.Open(append(bytes.Clone(sealed), 0), aad); !errors.Is(err, ErrTampered) {
		t.Errorf("a byte added: %v", err)
	}
	if _, err := ring.Open(sealed, []byte("other row")); !errors.Is(err, ErrTampered) {
		t.Errorf("another row: %v", err)
	}
	if _, err := mustParse(t, "1:"+key(2)).Open(sealed, aad); !errors.Is(err, ErrTampered) {
		t.Errorf("another key of the same version: %v", err)
	}
}

// TestVersionIsAuthenticated: under one key listed as two versions, the version cannot be rewritten.
func TestVersionIsAuthenticated(t *testing.T) {
	ring := mustParse(t, "1:"+key(1)+",2:"+key(1))
	sealed := ring.Seal([]byte("plain"), nil)
	sealed[2] = 1
	if _, err := ring.Open(sealed, nil); !errors.Is(err, ErrTampered) {
		t.Errorf("a rewritten version: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	ring := mustParse(f, "1:"+key(1))
	good, err := hex.DecodeString(sealedBefore) // fixed, since fuzzing spreads over several processes
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, []byte("row"))
	f.Add(good, []byte("other"))
	f.Add(good[:headerSize], []byte(nil))
	f.Add([]byte{formatGCM, 0, 2}, []byte("row"))
	f.Fuzz(func(t *testing.T, sealed, aad []byte) {
		before := bytes.Clone(sealed)
		plain, err := ring.Open(sealed, aad)
		var unknown ErrUnknownVersion
		switch {
		case err == nil && (!bytes.Equal(sealed, good) || string(aad) != "row" || string(plain) != "plain"):
			t.Fatalf("opened %q from what was never sealed", plain)
		case err != nil && !errors.Is(err, ErrTampered) && !errors.As(err, &unknown):
			t.Fatalf("unexpected error: %v", err)
		case !bytes.Equal(before, sealed):
			t.Fatal("the input was changed")
		}
	})
}
