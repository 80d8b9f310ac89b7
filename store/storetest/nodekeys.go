package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/ai-process/ktms/store"
)

var nodeKeyTests = []test{
	{"come back as they were written", testNodeKeyRoundTrip},
	{"are missing before they are written", testNodeKeyMissing},
	{"are unique", testNodeKeyUnique},
	{"may be several for one node", testNodeKeySuccessor},
	{"are revoked once", testNodeKeyRevoke},
	{"list by name", testNodeKeyList},
	{"are not client keys", testNodeKeyApart},
	{"are told to others", testNodeKeyFeed},
}

func newNodeKey(name, nodeID string) store.NodeKey {
	return store.NodeKey{
		ID:        rand.Text(),
		Name:      name,
		NodeID:    nodeID,
		Hash:      sha256.Sum256([]byte(rand.Text())),
		Prefix:    "ktms_node_1234567",
		CreatedAt: noon,
	}
}

func insertNodeKeys(t testing.TB, s store.Store, keys ...store.NodeKey) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, key := range keys {
			if err := tx.InsertNodeKey(ctx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// wantNodeKey compares a key, found by its hash, with the one that was written.
func wantNodeKey(t testing.TB, s store.Store, want store.NodeKey) {
	t.Helper()
	got, err := s.NodeKeyByHash(t.Context(), want.Hash)
	if err != nil {
		t.Fatal(err)
	}
	sameNodeKey(t, got, want)
}

func sameNodeKey(t testing.TB, got, want store.NodeKey) {
	t.Helper()
	want.CreatedAt = kept(want.CreatedAt)
	if !want.RevokedAt.IsZero() {
		want.RevokedAt = kept(want.RevokedAt)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("node key is\n%+v, want\n%+v", got, want)
	}
}

func testNodeKeyRoundTrip(t *testing.T, opener Opener) {
	s := opener.open(t)
	plain, full := newNodeKey("plain", "a"), newNodeKey("full", "b")
	full.AllowedModels = []string{"gemma4:26b-a4b-it-qat", `"quoted", ünï`}
	full.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}
	full.RevokedAt = noon.Add(time.Hour)
	change := insertNodeKeys(t, s, plain)
	wantHashes(t, change, plain.Hash)
	insertNodeKeys(t, s, full)

	for _, want := range []store.NodeKey{plain, full} {
		wantNodeKey(t, s, want)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.NodeKeyByName(ctx, want.Name)
			sameNodeKey(t, got, want)
			return err
		})
	}
}

func testNodeKeyMissing(t *testing.T, opener Opener) {
	s := opener.open(t)
	insertNodeKeys(t, s, newNodeKey("other", "a"))
	_, err := s.NodeKeyByHash(t.Context(), [32]byte{1})
	wantErr(t, "by hash", err, store.ErrNotFound)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.NodeKeyByName(ctx, "nobody")
		wantErr(t, "by name", err, store.ErrNotFound)
		wantErr(t, "revoke", tx.RevokeNodeKey(ctx, "nobody", noon), store.ErrNotFound)
		return nil
	})
}

func testNodeKeyUnique(t *testing.T, opener Opener) {
	s := opener.open(t)
	first := newNodeKey("first", "a")
	insertNodeKeys(t, s, first)

	sameName, sameID, sameHash, other := newNodeKey("first", "b"), newNodeKey("b", "b"), newNodeKey("c", "b"), newNodeKey("other", "b")
	sameID.ID, sameHash.Hash = first.ID, first.Hash
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "same name", tx.InsertNodeKey(ctx, sameName), store.ErrExists)
		wantErr(t, "same id", tx.InsertNodeKey(ctx, sameID), store.ErrExists)
		wantErr(t, "same hash", tx.InsertNodeKey(ctx, sameHash), store.ErrExists)
		return tx.InsertNodeKey(ctx, other) // the transaction goes on
	})
	wantNodeKey(t, s, first)
	wantNodeKey(t, s, other)
}

// testNodeKeySuccessor replaces a key as it is done in practice: hand out the next, then revoke the last.
func testNodeKeySuccessor(t *testing.T, opener Opener) {
	s := opener.open(t)
	last, next := newNodeKey("mac", "mac"), newNodeKey("mac-2", "mac")
	insertNodeKeys(t, s, last)
	insertNodeKeys(t, s, next)
	wantNodeKey(t, s, last)
	wantNodeKey(t, s, next)
	last.RevokedAt = noon.Add(time.Minute)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.RevokeNodeKey(ctx, last.ID, last.RevokedAt) })
	wantNodeKey(t, s, last)
	wantNodeKey(t, s, next)
}

func testNodeKeyRevoke(t *testing.T, opener Opener) {
	s := opener.open(t)
	key := newNodeKey("key", "a")
	insertNodeKeys(t, s, key)
	key.RevokedAt = noon.Add(time.Minute)
	revoke := func(at time.Time) store.Change {
		return update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.RevokeNodeKey(ctx, key.ID, at) })
	}
	first := revoke(key.RevokedAt)
	wantHashes(t, first, key.Hash)
	again := revoke(noon.Add(time.Hour))
	wantNodeKey(t, s, key)
	if again.Version != first.Version {
		t.Errorf("revoking again raised the version from %d to %d", first.Version, again.Version)
	}
}

func testNodeKeyList(t *testing.T, opener Opener) {
	s := opener.open(t)
	sorted := []string{"B-2", "a-1", "b-3", "c.4"}
	for _, i := range []int{3, 0, 2, 1} {
		key := newNodeKey(sorted[i], "n")
		if sorted[i] == "b-3" {
			key.RevokedAt = noon
		}
		insertNodeKeys(t, s, key)
	}
	for _, test := range []struct {
		after   string
		limit   int
		revoked bool
		want    []string
	}{
		{"", 100, true, sorted},
		{"", 100, false, []string{"B-2", "a-1", "c.4"}},
		{"", 2, true, []string{"B-2", "a-1"}},
		{"a-1", 1, true, []string{"b-3"}},
		{"a-1", 1, false, []string{"c.4"}},
		{"c.4", 100, true, []string{}},
		{"", 0, true, []string{}},
	} {
		keys, err := s.ListNodeKeys(t.Context(), test.after, test.limit, test.revoked)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, 0, len(keys))
		for _, key := range keys {
			got = append(got, key.Name)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%d after %q, revoked too %t: got %q, want %q", test.limit, test.after, test.revoked, got, test.want)
		}
	}
}

// testNodeKeyApart gives a client key and a node key everything in common that they could have.
func testNodeKeyApart(t *testing.T, opener Opener) {
	s := opener.open(t)
	client, node := newKey("same"), newNodeKey("same", "a")
	node.ID = client.ID
	insertKeys(t, s, client)
	insertNodeKeys(t, s, node)
	_, err := s.KeyByHash(t.Context(), node.Hash)
	wantErr(t, "a node key among client keys", err, store.ErrNotFound)
	_, err = s.NodeKeyByHash(t.Context(), client.Hash)
	wantErr(t, "a client key among node keys", err, store.ErrNotFound)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.RevokeNodeKey(ctx, node.ID, noon) })
	wantKey(t, keyByName(t, s, "same"), client)
}

func testNodeKeyFeed(t *testing.T, opener Opener) {
	open := opener.Fresh(t)
	hearing, writing := open(), open()
	if !opener.Shared {
		writing = hearing
	}
	heard := Hear(t, hearing)
	key := newNodeKey("key", "a")
	minted := insertNodeKeys(t, writing, key)
	revoked := update(t, writing, func(ctx context.Context, tx store.Tx) error { return tx.RevokeNodeKey(ctx, key.ID, noon) })
	wantDelivered(t, heard, minted.Version)
	wantDelivered(t, heard, revoked.Version)
	for _, change := range heard.Since(1) {
		wantHashes(t, change, key.Hash)
	}
}
