package postgres

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/ai-process/ktms/store"
)

// changeChannel carries changes, from every replica to every replica.
const changeChannel = "ktms_config"

// notify sends one notification; within a transaction it leaves with the commit.
const notify = `SELECT pg_notify($1, $2)`

// maxPayload is what one notification carries; Postgres demands fewer than 8000 bytes.
const maxPayload = 7999

// payload is a change on its way. Releases read each other's: fields may be added, none may change its meaning.
type payload struct {
	Version int64    `json:"version"`
	Keys    [][]byte `json:"keys,omitempty"`
	All     bool     `json:"all,omitempty"`
}

// encodeChange says that every key changed when there are too many to name.
func encodeChange(change store.Change) string {
	message := payload{Version: change.Version, All: change.All}
	for _, hash := range change.KeyHashes {
		message.Keys = append(message.Keys, hash[:])
	}
	text, err := json.Marshal(message)
	if err != nil || len(text) > maxPayload {
		return encodeChange(store.Change{Version: change.Version, All: true})
	}
	return string(text)
}

// decodeChange takes what it cannot read for a change of everything.
func decodeChange(text string) store.Change {
	var message payload
	if err := json.Unmarshal([]byte(text), &message); err != nil {
		return store.Change{All: true}
	}
	change := store.Change{Version: message.Version, All: message.All}
	for _, hash := range message.Keys {
		if len(hash) != sha256.Size {
			return store.Change{Version: message.Version, All: true}
		}
		change.KeyHashes = append(change.KeyHashes, [32]byte(hash))
	}
	if change.All {
		change.KeyHashes = nil
	}
	return change
}
