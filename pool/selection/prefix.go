package selection

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// MaxPrefixes is how many keys a prompt has at most. Each is looked up and stored for every request.
	MaxPrefixes = 14
	// Of a long conversation the first ends are shared with other conversations, and the last ones with the turn before
	// this one, which was shorter by two messages, or by some more where tools were called.
	firstEnds, lastEnds = 3, 6
	// chunkFrom is the shortest beginning of a message, in bytes, that has a key of its own. The next ones are at one and a
	// half times and twice that, and so on: a shared beginning is recognised to two thirds at least.
	chunkFrom = 2048
)

// Prompt is what prefixes are made of, in an encoding that is always the same for the same content.
type Prompt struct {
	// Tenant salts the keys. Without it one tenant could find out by its waits what another has asked.
	Tenant string
	Model  string
	// Head is tools and system prompt.
	Head []byte
	// Messages are the turns, with their roles.
	Messages [][]byte
	// Tokens is the estimate for all of it.
	Tokens int64
}

// Key names a beginning of a prompt.
type Key [16]byte

// Prefix is a beginning of a prompt.
type Prefix struct {
	Key Key
	// Bytes is its length, and Tokens its share of the prompt's.
	Bytes, Tokens int64
}

// Prefixes are the beginnings of a prompt that may be found on a node, shortest first, the whole prompt last. Their keys
// form a chain, so that a key stands for all that comes before it.
func Prefixes(p Prompt) []Prefix {
	ends, chunks := beginnings(p)
	if len(ends) == 0 {
		return nil
	}
	total := ends[len(ends)-1].Bytes
	if middle := len(ends) - firstEnds - lastEnds; middle > 0 {
		ends = slices.Delete(ends, firstEnds, firstEnds+middle)
	}
	// The deepest ones save the most.
	if over := len(ends) + len(chunks) - MaxPrefixes; over > 0 {
		chunks = chunks[min(over, len(chunks)):]
	}
	prefixes := slices.Concat(ends, chunks)
	slices.SortFunc(prefixes, func(a, b Prefix) int { return int(a.Bytes - b.Bytes) })
	for i := range prefixes {
		prefixes[i].Tokens = share(p.Tokens, prefixes[i].Bytes, total)
	}
	return prefixes
}

// beginnings are the keys at the ends of head and messages, and within long ones.
func beginnings(p Prompt) (ends, chunks []Prefix) {
	chain := sha256.Sum256(slices.Concat(counted(p.Tenant), counted(p.Model)))
	depth := int64(0)
	pieces := append([][]byte{p.Head}, p.Messages...)
	for _, piece := range pieces {
		// An empty head or message is no reason to choose a node, but it has its place in the chain.
		hash := sha256.New()
		hash.Write(chain[:])
		from := 0
		for to := range chunkEnds(len(piece)) {
			hash.Write(piece[from:to])
			from = to
			chunks = append(chunks, Prefix{Key: Key(hash.Sum(nil)), Bytes: depth + int64(to)})
		}
		hash.Write(piece[from:])
		// Hashed once more, so that an end is not taken for the beginning of a longer message.
		chain = sha256.Sum256(hash.Sum(nil))
		if depth += int64(len(piece)); len(piece) > 0 {
			ends = append(ends, Prefix{Key: Key(chain[:]), Bytes: depth})
		}
	}
	return ends, chunks
}

// chunkEnds are 2, 3, 4, 6, 8, 12 … KiB, as long as they are shorter than a message.
func chunkEnds(length int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for end := chunkFrom; end < length; end *= 2 {
			if !yield(end) {
				return
			}
			if end+end/2 < length && !yield(end+end/2) {
				return
			}
		}
	}
}

func counted(s string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(len(s))), s...)
}

// share is tokens × part ÷ whole, rounded down.
func share(tokens, part, whole int64) int64 {
	if tokens <= 0 || whole <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(whole)) // part ≤ whole, so it fits
	return int64(quotient)
}
