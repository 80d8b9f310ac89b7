package vendors

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretNeverPrintsItself(t *testing.T) {
	const canary = "sk-canary"
	target := Target{Key: NewSecret(canary)}
	var sink strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%T"} {
		_, _ = fmt.Fprintf(&sink, verb, target.Key)
		_, _ = fmt.Fprintf(&sink, verb, &target.Key)
		_, _ = fmt.Fprintf(&sink, verb, target)
	}
	encoded, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	sink.Write(encoded)
	slog.New(slog.NewJSONHandler(&sink, nil)).Info("x", "key", target.Key, "target", target)
	slog.New(slog.NewTextHandler(&sink, nil)).Info("x", "key", target.Key, "target", target)
	if strings.Contains(sink.String(), canary) || strings.Contains(sink.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("the secret shows: %s", sink.String())
	}
	if target.Key.Reveal() != canary || target.Key.IsZero() {
		t.Error("Reveal must still give it away")
	}
}
