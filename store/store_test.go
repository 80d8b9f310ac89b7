package store

import "testing"

func TestFingerprint(t *testing.T) {
	// printf 'ktms:openai:sk-1' | sha256sum | cut -c 1-16
	const want = "8ff8bddd689a9693"
	if got := Fingerprint("openai", "sk-1"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if Fingerprint("openai", "sk-1") == Fingerprint("azure", "sk-1") {
		t.Error("two vendors' credentials have one fingerprint")
	}
}
