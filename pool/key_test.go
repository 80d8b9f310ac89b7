package pool_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ai-process/ktms/pool"
)

func TestKeyReadable(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][]string{
		"rpm:key-1:gpt-4.1":     {"rpm", "key-1", "gpt-4.1"},
		"spend:user:a@b.c:day":  {"spend", "user", "a@b.c", "day"},
		"a%3a.b:c%25.:%20.%0.é": {"a:b", "c%", " \x00é"},
		":":                     {"", ""},
	} {
		if got := pool.Key(parts...); got != want {
			t.Errorf("the key of %q is %q, want %q", parts, got, want)
		}
	}
}

// TestKeyTellsApart makes keys of many short lists of parts out of the characters that matter, and of random ones.
func TestKeyTellsApart(t *testing.T) {
	t.Parallel()
	seen := map[string][]string{}
	check := func(parts []string) {
		key := pool.Key(parts...)
		if other, found := seen[key]; found && !slices.Equal(other, parts) {
			t.Fatalf("%q and %q have the same key %q", parts, other, key)
		}
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' }) {
			t.Fatalf("the key %q of %q has spaces", key, parts)
		}
		seen[key] = slices.Clone(parts)
	}
	alphabet := []string{":", "%", "3", "a", "."} // of which an escaped colon is made: %3a.
	words := []string{""}
	for from, length := 0, 1; length <= 4; length++ {
		to := len(words)
		for _, word := range words[from:to] {
			for _, letter := range alphabet {
				words = append(words, word+letter)
			}
		}
		from = to
	}
	for i, first := range words {
		check([]string{first})
		for _, second := range words[:min(i, 40)] {
			check([]string{first, second})
			check([]string{second, first})
		}
	}
	random := rand.New(rand.NewPCG(1, 0))
	for range 20_000 {
		parts := make([]string, 1+random.IntN(4))
		for i := range parts {
			for range random.IntN(5) {
				parts[i] += string([]byte{byte(random.IntN(256))})
				parts[i] += alphabet[random.IntN(len(alphabet))]
			}
		}
		check(parts)
	}
	if len(seen) < 75_000 {
		t.Errorf("only %d keys were compared", len(seen))
	}
}

func TestKeyAllocates(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { pool.Key("spend", "a-user@example.com", "gpt-4.1-mini", "month") }); n > 1 {
		t.Errorf("a key takes %g allocations, want 1", n)
	}
}
