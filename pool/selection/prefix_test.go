package selection_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

func text(seed byte, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = seed + byte(i*i>>7) + byte(i)
	}
	return b
}

func prompt(messages ...[]byte) selection.Prompt {
	return selection.Prompt{Tenant: "acme", Model: "m", Head: text(1, 400), Messages: messages, Tokens: 1000}
}

// common is the depth, in bytes, to which the second prompt is found on a node that was sent the first.
func common(first, second selection.Prompt) int64 {
	held := map[selection.Key]bool{}
	for _, p := range selection.Prefixes(first) {
		held[p.Key] = true
	}
	depth := int64(0)
	for _, p := range selection.Prefixes(second) {
		if held[p.Key] {
			depth = p.Bytes
		}
	}
	return depth
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	long := text(9, 100_000)
	var talk [][]byte
	for i := range 30 {
		talk = append(talk, text(byte(i), 100))
	}
	for name, test := range map[string]struct {
		first, second selection.Prompt
		from, to      int64
	}{
		"the same":             {prompt(text(2, 50)), prompt(text(2, 50)), 450, 450},
		"shared head":          {prompt(text(2, 50)), prompt(text(3, 50)), 400, 400},
		"the next turn":        {prompt(talk[:1]...), prompt(talk[:3]...), 500, 500},
		"a late turn":          {prompt(talk[:20]...), prompt(talk[:22]...), 2400, 2400},
		"after tool calls":     {prompt(talk[:20]...), prompt(talk[:25]...), 2400, 2400},
		"another branch":       {prompt(talk[:20]...), prompt(append(talk[:2:2], talk[25:]...)...), 600, 600},
		"questions on a text":  {prompt(append(long[:90_000:90_000], "why?"...)), prompt(append(long[:90_000:90_000], "who?"...)), 60_000, 90_400},
		"a text that goes on":  {prompt(long[:9_000]), prompt(long), 6_000, 9_400},
		"other tenant":         {prompt(talk...), func() selection.Prompt { p := prompt(talk...); p.Tenant = "evil"; return p }(), 0, 0},
		"other model":          {prompt(talk...), func() selection.Prompt { p := prompt(talk...); p.Model = "n"; return p }(), 0, 0},
		"names run together":   {selection.Prompt{Tenant: "ab", Model: "c", Head: long}, selection.Prompt{Tenant: "a", Model: "bc", Head: long}, 0, 0},
		"pieces run together":  {prompt(talk[0], talk[1]), prompt(bytes.Join(talk[:2], nil)), 400, 400},
		"head is no message":   {selection.Prompt{Head: long}, selection.Prompt{Messages: [][]byte{long}}, 0, 0},
		"an end is no middle":  {prompt(long[:4096]), prompt(long[:5000]), 400 + 3072, 400 + 3072},
		"nothing":              {selection.Prompt{}, selection.Prompt{}, 0, 0},
		"other second message": {prompt(talk[0], talk[1], talk[2]), prompt(talk[0], talk[3], talk[2]), 500, 500},
	} {
		if got := common(test.first, test.second); got < test.from || got > test.to {
			t.Errorf("%s: recognised %d bytes, want %d to %d", name, got, test.from, test.to)
		}
	}
}

// TestPrefixTokens: the whole prompt has all the tokens, and the shares grow with the depth.
func TestPrefixTokens(t *testing.T) {
	t.Parallel()
	prefixes := selection.Prefixes(prompt(text(2, 400), text(3, 200)))
	want := []int64{400, 800, 1000}
	if len(prefixes) != len(want) {
		t.Fatalf("%d prefixes, want %d", len(prefixes), len(want))
	}
	for i, p := range prefixes {
		if p.Tokens != want[i] {
			t.Errorf("prefix %d has %d tokens, want %d", i, p.Tokens, want[i])
		}
	}
}

// TestMaxPrefixes: many long messages have no more keys than fit, the ends and the deepest of the chunks.
func TestMaxPrefixes(t *testing.T) {
	t.Parallel()
	var messages [][]byte
	for i := range 20 {
		messages = append(messages, text(byte(i), 20_000))
	}
	prefixes := selection.Prefixes(prompt(messages...))
	if len(prefixes) != selection.MaxPrefixes {
		t.Errorf("%d prefixes, want %d", len(prefixes), selection.MaxPrefixes)
	}
	// All five chunks that fit are in the last message, at 4, 6, 8, 12 and 16 KiB; then comes its end.
	want := []int64{380_400 + 4096, 380_400 + 6144, 380_400 + 8192, 380_400 + 12_288, 380_400 + 16_384, 400_400}
	for i, p := range prefixes[len(prefixes)-len(want):] {
		if p.Bytes != want[i] {
			t.Errorf("prefix %d from the end is at %d, want %d", len(want)-i, p.Bytes, want[i])
		}
	}
}

func FuzzPrefixes(f *testing.F) {
	f.Add("a", "m", []byte("head"), []byte("x|yy||z"), int64(10), 3)
	f.Add("", "", []byte{}, bytes.Repeat([]byte("long|"), 5000), int64(-1), 900)
	f.Fuzz(func(t *testing.T, tenant, model string, head, messages []byte, tokens int64, repeat int) {
		p := selection.Prompt{Tenant: tenant, Model: model, Head: head, Tokens: tokens}
		for _, m := range bytes.Split(messages, []byte("|")) {
			p.Messages = append(p.Messages, bytes.Repeat(m, 1+repeat&63))
		}
		length := len(head)
		for _, m := range p.Messages {
			length += len(m)
		}
		if length > 1<<18 {
			return
		}
		prefixes := selection.Prefixes(p)
		if len(prefixes) > selection.MaxPrefixes || (length == 0) != (len(prefixes) == 0) {
			t.Fatalf("%d prefixes of %d bytes", len(prefixes), length)
		}
		if length == 0 {
			return
		}
		if last := prefixes[len(prefixes)-1]; last.Bytes != int64(length) || last.Tokens != max(tokens, 0) {
			t.Fatalf("the last prefix is %d bytes and %d tokens, want %d and %d", last.Bytes, last.Tokens, length, tokens)
		}
		seen := map[selection.Key]bool{}
		for i, x := range prefixes {
			if seen[x.Key] {
				t.Fatal("two prefixes have one key")
			}
			seen[x.Key] = true
			if i > 0 && (x.Bytes <= prefixes[i-1].Bytes || x.Tokens < prefixes[i-1].Tokens) {
				t.Fatalf("%v comes after %v", x, prefixes[i-1])
			}
		}
		other := p
		other.Tenant += "'"
		if !strings.Contains(tenant, "'") && common(p, other) != 0 {
			t.Fatal("tenants share a key")
		}
	})
}
