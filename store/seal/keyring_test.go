package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// key returns the base64 of 32 bytes that all have the same value.
func key(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func mustParse(t testing.TB, text string) *Keyring {
	t.Helper()
	ring, err := ParseKeyring(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestParseKeyringAccepts(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		newest int
	}{
		"one key":                  {"1:" + key(1), 1},
		"the order does not count": {"7:" + key(1) + ",2:" + key(2), 7},
		"without padding":          {"1:" + strings.TrimRight(key(1), "="), 1},
		"white space":              {" 1 : " + key(1) + "\n,\t2:" + key(2) + "\n", 2},
		"the highest version":      {"65535:" + key(1), 65535},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustParse(t, test.text).Newest(); got != test.newest {
				t.Errorf("newest is %d, want %d", got, test.newest)
			}
		})
	}
}

func TestParseKeyringNamesEveryMistake(t *testing.T) {
	short := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 16))
	text := strings.Join([]string{
		"1:" + key(1),
		"1:" + key(2),
		"0:" + key(3),
		"65536:" + key(4),
		key(5),
		"6:" + short,
		"7:$$$$" + key(6),
		"",
		key(7) + ":8",
	}, ",")
	_, err := ParseKeyring(text)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"entry 2 (version 1): the version is listed twice",
		"entry 3: its version is not a number from 1 to 65535",
		"entry 4: its version is not a number",
		"entry 5: it has no version",
		"entry 6 (version 6): the key has 16 bytes, want 32",
		"entry 7 (version 7): the key is not base64",
		"entry 8: it is empty",
		"entry 9: its version is not a number",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	for fill := byte(1); fill <= 9; fill++ {
		if strings.Contains(err.Error(), key(fill)[:8]) {
			t.Errorf("key %d is in:\n%v", fill, err)
		}
	}
}

func TestParseKeyringRefusesNothing(t *testing.T) {
	for _, text := range []string{"", " \n"} {
		if _, err := ParseKeyring(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestGenerateKeyring(t *testing.T) {
	first, second := GenerateKeyring(), GenerateKeyring()
	if first == second {
		t.Error("generated the same keyring twice")
	}
	if got := mustParse(t, first).Newest(); got != 1 {
		t.Errorf("newest is %d, want 1", got)
	}
}

func TestKeyringPrintsNoKey(t *testing.T) {
	ring := mustParse(t, "1:"+key(1))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, value := range []any{ring, *ring} {
			if got := fmt.Sprintf(verb, value); got != redacted {
				t.Errorf("%s prints %q", verb, got)
			}
		}
	}
	if got := fmt.Sprintf("%+v", struct{ Ring *Keyring }{ring}); got != "{Ring:[keyring]}" {
		t.Errorf("within a struct it prints %q", got)
	}
	for _, value := range []any{ring, *ring} {
		if got, err := json.Marshal(value); err != nil || string(got) != `"[keyring]"` {
			t.Errorf("JSON is %s, %v", got, err)
		}
		var text, object bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("start", "ring", value)
		slog.New(slog.NewJSONHandler(&object, nil)).Info("start", "ring", value)
		if !strings.Contains(text.String(), "ring=[keyring]") || !strings.Contains(object.String(), `"ring":"[keyring]"`) {
			t.Errorf("logs say %s%s", &text, &object)
		}
	}
}

func FuzzParseKeyring(f *testing.F) {
	f.Add("1:" + key(1))
	f.Add("1:" + key(1) + ",2:" + strings.TrimRight(key(2), "="))
	f.Add(" 3 : " + key(1) + " ,, 0:x")
	f.Add("65536:AAAA,:,a:b:c")
	f.Fuzz(func(t *testing.T, text string) {
		ring, err := ParseKeyring(text)
		if err != nil {
			return
		}
		if ring.Newest() < 1 || ring.Newest() > 65535 {
			t.Fatalf("newest is %d", ring.Newest())
		}
		plain, err := ring.Open(ring.Seal([]byte("plain"), []byte("aad")), []byte("aad"))
		if err != nil || string(plain) != "plain" {
			t.Fatalf("opened %q, %v", plain, err)
		}
	})
}
