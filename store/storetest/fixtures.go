package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

// noon has more digits than a store keeps, and a zone that it does not keep.
var noon = time.Date(2026, 5, 4, 12, 30, 15, 123456789, time.FixedZone("CEST", 2*60*60))

// kept is a time as a store returns it.
func kept(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func newKey(name string) store.Key {
	return store.Key{
		ID:        rand.Text(),
		Name:      name,
		Hash:      sha256.Sum256([]byte(rand.Text())),
		Prefix:    "ktms_1234",
		Scopes:    []string{"generate"},
		Policy:    &ktmsv1.APIKeyPolicy{},
		CreatedAt: noon,
	}
}

func newOrganization(name string) store.Organization {
	return store.Organization{ID: rand.Text(), Name: name, CreatedAt: noon}
}

func newTeam(orgID, name string) store.Team {
	return store.Team{ID: rand.Text(), OrgID: orgID, Name: name, CreatedAt: noon}
}

// update runs fn in one Update that must succeed.
func update(t testing.TB, s store.Store, fn func(ctx context.Context, tx store.Tx) error) store.Change {
	t.Helper()
	change, err := s.Update(t.Context(), fn)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func insertKeys(t testing.TB, s store.Store, keys ...store.Key) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, key := range keys {
			if err := tx.InsertKey(ctx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

func insertTenants(t testing.TB, s store.Store, org store.Organization, teams ...store.Team) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.InsertOrganization(ctx, org); err != nil {
			return err
		}
		for _, team := range teams {
			if err := tx.InsertTeam(ctx, team); err != nil {
				return err
			}
		}
		return nil
	})
}

func config(t testing.TB, s store.Store) *store.Config {
	t.Helper()
	config, err := s.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func keyByName(t testing.TB, s store.Store, name string) store.Key {
	t.Helper()
	key, err := s.KeyByName(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// wantKey compares a key that was read with the one that was written.
func wantKey(t testing.TB, got, want store.Key) {
	t.Helper()
	want.CreatedAt = kept(want.CreatedAt)
	if !want.RevokedAt.IsZero() {
		want.RevokedAt = kept(want.RevokedAt)
	}
	if !proto.Equal(got.Policy, want.Policy) {
		t.Errorf("policy of %s is %v, want %v", want.Name, got.Policy, want.Policy)
	}
	got.Policy, want.Policy = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("key is\n%+v, want\n%+v", got, want)
	}
}

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantMessages compares lists of messages.
func wantMessages[M proto.Message](t testing.TB, got, want []M) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d: %v, want %d: %v", len(got), got, len(want), want)
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("number %d is\n%v, want\n%v", i, got[i], want[i])
		}
	}
}

func names(keys []store.Key) []string {
	all := make([]string, 0, len(keys))
	for _, key := range keys {
		all = append(all, key.Name)
	}
	return all
}
