package postgres

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"testing"

	"github.com/ai-process/ktms/store"
)

func hashes(n int) [][32]byte {
	var all [][32]byte
	for i := range n {
		all = append(all, sha256.Sum256([]byte(fmt.Sprint(i))))
	}
	return all
}

func TestChangesTravel(t *testing.T) {
	for _, change := range []store.Change{
		{Version: 1},
		{Version: 1 << 60, KeyHashes: hashes(1)},
		{Version: 2, KeyHashes: hashes(150)},
		{Version: 3, All: true},
	} {
		text := encodeChange(change)
		if got := decodeChange(text); !reflect.DeepEqual(got, change) {
			t.Errorf("%+v became %s, then %+v", change, text, got)
		}
	}
}

func TestChangesFitInANotification(t *testing.T) {
	named := 0
	for n := range 400 {
		text := encodeChange(store.Change{Version: 1<<63 - 1, KeyHashes: hashes(n)})
		if len(text) >= 8000 {
			t.Fatalf("%d keys take %d bytes", n, len(text))
		}
		got := decodeChange(text)
		if got.Version != 1<<63-1 || got.All == (len(got.KeyHashes) == n) && n > 0 {
			t.Fatalf("%d keys arrive as %d, all %t", n, len(got.KeyHashes), got.All)
		}
		if !got.All {
			named = n
		}
	}
	if named < 150 {
		t.Errorf("only %d keys are named", named)
	}
}

// TestChangesThatCannotBeRead: too much is told rather than too little.
func TestChangesThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]store.Change{
		"":                              {All: true},
		"reload":                        {All: true},
		`{"version":"5"}`:               {All: true},
		`{"version":5,"keys":["AAAA"]}`: {Version: 5, All: true},
		`{"version":5,"all":true,"keys":["` + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" + `"]}`: {Version: 5, All: true},
		`{"version":5,"later":{"field":1}}`: {Version: 5},
	} {
		if got := decodeChange(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, want %+v", text, got, want)
		}
	}
}
