package admin

import (
	"context"
	"time"

	"github.com/ai-process/ktms/server/status"
)

// SealNodeToken encrypts the bearer token of a node's engine. It opens for the same node alone.
func SealNodeToken(sealer Sealer, nodeID string, plain []byte) []byte {
	return sealer.Seal(plain, nodeTokenAAD(nodeID))
}

// OpenNodeToken returns the bearer token of a node's engine as it was given.
func OpenNodeToken(sealer Sealer, nodeID string, sealed []byte) ([]byte, error) {
	return sealer.Open(sealed, nodeTokenAAD(nodeID))
}

// nodeTokenAAD binds a token to its node, and keeps it apart from whatever else the keyring seals.
func nodeTokenAAD(nodeID string) []byte { return []byte("node_token\x00" + nodeID) }

// oldToken is a node's token that was not sealed with the newest version.
type oldToken struct {
	nodeID       string
	former, next []byte
}

// sealTokens seals the tokens that need it anew, and stores none of them. One that the keyring cannot open is an error.
func (h *Handler) sealTokens(ctx context.Context) ([]oldToken, error) {
	fleet, err := h.options.Nodes.Fleet(ctx)
	if err != nil {
		return nil, status.Wrap(err, status.StorageUnavailable, "the pool's state is not reachable, so that the tokens of nodes "+
			"cannot be sealed anew; nothing was changed, retry with backoff")
	}
	sealer := h.options.Sealer
	var old []oldToken
	for i := range fleet.Nodes {
		id, token := fleet.Nodes[i].ID, fleet.Nodes[i].Token
		if len(token) == 0 {
			continue
		}
		if version, err := sealer.Version(token); err == nil && version == sealer.Newest() {
			continue
		}
		plain, err := OpenNodeToken(sealer, id, token)
		if err != nil {
			return nil, status.Wrap(err, status.FailedPrecondition,
				"the keyring cannot open the token of node %q: %v; nothing was changed. Add the version that it was sealed with, "+
					"or let the node register anew", id, err)
		}
		old = append(old, oldToken{id, token, SealNodeToken(sealer, id, plain)})
	}
	return old, nil
}

// poolTimeout bounds what is done in the pool after a change is committed, when nobody may be waiting any more.
const poolTimeout = 10 * time.Second

// storeTokens replaces tokens, and returns how many, even if the caller is gone, since the store is changed by now. A node
// that has registered or left in between needs no new one.
func (h *Handler) storeTokens(ctx context.Context, old []oldToken) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), poolTimeout)
	defer cancel()
	changed := 0
	for _, token := range old {
		done, err := h.options.Nodes.Reseal(ctx, token.nodeID, token.former, token.next)
		if err != nil {
			return changed, status.Wrap(err, status.StorageUnavailable, "the vendor keys were sealed anew, but of the tokens of %d nodes "+
				"only %d: the pool's state is not reachable; call again", len(old), changed)
		}
		if done {
			changed++
		}
	}
	return changed, nil
}

// expel takes the node that registered with a key out of the pool. The key is revoked whether that works or not: without a
// key the node's heartbeats end.
func (h *Handler) expel(ctx context.Context, nodeID, keyID string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), poolTimeout)
	defer cancel()
	removed, err := h.options.Nodes.Remove(ctx, nodeID, keyID)
	if err != nil {
		h.options.Log.WarnContext(ctx, "the node of a revoked key stays in the pool until its heartbeats are missed", "node", nodeID, "error", err)
		return false
	}
	return removed
}
