package redis

import (
	"errors"
	"strconv"
	"strings"

	"github.com/ai-process/ktms/pool"
)

// keys spells every key. The part in braces is what a cluster hashes; because it is the same for all, they are together.
type keys struct{ tag string }

func newKeys(prefix string) (keys, error) {
	if strings.ContainsAny(prefix, "{}") {
		return keys{}, errors.New("the key prefix has braces, which would decide where a cluster keeps each key: leave them out")
	}
	return keys{tag: "{" + prefix + "ktms}:"}, nil
}

// rate is the level of a rate.
func (k keys) rate(to []byte, key string) []byte {
	return append(append(append(to, k.tag...), "r:"...), key...)
}

// sums is what is settled and reserved of the window that began then, in microseconds.
func (k keys) sums(to []byte, key string, start int64) []byte {
	return k.window(to, "w:", key, start)
}

// leases are the reservations of a window.
func (k keys) leases(to []byte, key string, start int64) []byte {
	return k.window(to, "l:", key, start)
}

// done is the memory of an id that was settled or debited.
func (k keys) done(to []byte, id pool.ID) []byte {
	return append(append(append(to, k.tag...), "d:"...), id...)
}

// window ends with the start, so that no key with a start is another key with another one.
func (k keys) window(to []byte, kind, key string, start int64) []byte {
	to = append(append(append(to, k.tag...), kind...), key...)
	return strconv.AppendInt(append(to, ':'), start, 10)
}
