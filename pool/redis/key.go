package redis

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
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

// nodes are the registered ones by their last heartbeat, removed those that were removed by when, and generations counts
// what was given out.
func (k keys) nodes() string       { return k.tag + "nodes" }
func (k keys) removed() string     { return k.tag + "removed" }
func (k keys) generations() string { return k.tag + "generations" }

// fleet is what the fleet shows of a node. It does not change with every request.
func (k keys) fleet(id string) string { return k.tag + "node:" + kindFleet + id }

// kinds of keys that each node has.
const (
	kindFleet    = "fleet:"
	kindLoad     = "load:"
	kindInflight = "inflight:"
	kindLease    = "lease:"
	kindIdle     = "idle:"
	kindSpeed    = "speed:"
)

// node is one of the kinds.
func (k keys) node(to []byte, kind, id string) []byte {
	return append(append(append(append(to, k.tag...), "node:"...), kind...), id...)
}

// turn is whose turn it is among the nodes of a model.
func (k keys) turn(to []byte, model string) []byte {
	return append(append(append(to, k.tag...), "node:turn:"...), model...)
}

// prefix is who holds the beginning of a prompt.
func (k keys) prefix(to []byte, key selection.Key) []byte {
	return hex.AppendEncode(append(append(to, k.tag...), "node:prefix:"...), key[:])
}

// released is the memory of a release.
func (k keys) released(to []byte, id pool.ID) []byte {
	return append(append(append(to, k.tag...), "node:released:"...), id...)
}

// window ends with the start, so that no key with a start is another key with another one.
func (k keys) window(to []byte, kind, key string, start int64) []byte {
	to = append(append(append(to, k.tag...), kind...), key...)
	return strconv.AppendInt(append(to, ':'), start, 10)
}
