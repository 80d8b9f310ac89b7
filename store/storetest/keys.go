package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

var keyTests = []test{
	{"come back as they were written", testKeyRoundTrip},
	{"are missing before they are written", testKeyMissing},
	{"are unique", testKeyUnique},
	{"need their tenant", testKeyTenant},
	{"change their policy", testKeyPolicy},
	{"are revoked once", testKeyRevoke},
	{"list by name", testKeyList},
	{"count while active", testKeyActive},
	{"leave their tenant when revoked", testKeyDetach},
}

func testKeyRoundTrip(t *testing.T, opener Opener) {
	s := opener.open(t)
	org := newOrganization("acme")
	team := newTeam(org.ID, "search")
	insertTenants(t, s, org, team)

	plain := newKey("plain")
	plain.Scopes = nil
	full := newKey("full")
	full.Scopes = []string{"generate", "admin:read"}
	full.OrgID, full.TeamID = org.ID, team.ID
	full.Policy = &ktmsv1.APIKeyPolicy{AllowedModels: []string{"gpt", `"quoted", ünï`}, RpmLimit: 60, TpmLimit: 1 << 40}
	full.RevokedAt = noon.Add(time.Hour)
	insertKeys(t, s, plain, full)

	for _, want := range []store.Key{plain, full} {
		got, err := s.KeyByHash(t.Context(), want.Hash)
		if err != nil {
			t.Fatal(err)
		}
		wantKey(t, got, want)
		wantKey(t, keyByName(t, s, want.Name), want)
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			byName, err := tx.KeyByName(ctx, want.Name)
			wantKey(t, byName, want)
			byID, err2 := tx.KeyByID(ctx, want.ID)
			wantKey(t, byID, want)
			return errors.Join(err, err2)
		})
	}
}

func testKeyMissing(t *testing.T, opener Opener) {
	s := opener.open(t)
	insertKeys(t, s, newKey("other"))
	_, err := s.KeyByHash(t.Context(), [32]byte{1})
	wantErr(t, "by hash", err, store.ErrNotFound)
	_, err = s.KeyByName(t.Context(), "nobody")
	wantErr(t, "by name", err, store.ErrNotFound)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.KeyByName(ctx, "nobody")
		wantErr(t, "by name", err, store.ErrNotFound)
		_, err = tx.KeyByID(ctx, "nobody")
		wantErr(t, "by id", err, store.ErrNotFound)
		wantErr(t, "set policy", tx.SetKeyPolicy(ctx, "nobody", &ktmsv1.APIKeyPolicy{}), store.ErrNotFound)
		wantErr(t, "revoke", tx.RevokeKey(ctx, "nobody", noon), store.ErrNotFound)
		return nil
	})
}

func testKeyUnique(t *testing.T, opener Opener) {
	s := opener.open(t)
	first := newKey("first")
	insertKeys(t, s, first)

	sameName, sameID, sameHash, other := newKey("first"), newKey("b"), newKey("c"), newKey("other")
	sameID.ID, sameHash.Hash = first.ID, first.Hash
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "same name", tx.InsertKey(ctx, sameName), store.ErrExists)
		wantErr(t, "same id", tx.InsertKey(ctx, sameID), store.ErrExists)
		wantErr(t, "same hash", tx.InsertKey(ctx, sameHash), store.ErrExists)
		return tx.InsertKey(ctx, other) // the transaction goes on
	})
	wantKey(t, keyByName(t, s, "first"), first)
	wantKey(t, keyByName(t, s, "other"), other)
}

func testKeyTenant(t *testing.T, opener Opener) {
	s := opener.open(t)
	acme, zeta := newOrganization("acme"), newOrganization("zeta")
	team := newTeam(zeta.ID, "search")
	insertTenants(t, s, acme)
	insertTenants(t, s, zeta, team)

	noOrg, noTeam, otherTeam, inOrg := newKey("a"), newKey("b"), newKey("c"), newKey("d")
	noOrg.OrgID = "nobody"
	noTeam.OrgID, noTeam.TeamID = acme.ID, "nobody"
	otherTeam.OrgID, otherTeam.TeamID = acme.ID, team.ID
	inOrg.OrgID = acme.ID
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "no such organization", tx.InsertKey(ctx, noOrg), store.ErrNotFound)
		wantErr(t, "no such team", tx.InsertKey(ctx, noTeam), store.ErrNotFound)
		wantErr(t, "a team of another organization", tx.InsertKey(ctx, otherTeam), store.ErrNotFound)
		return tx.InsertKey(ctx, inOrg)
	})
	wantKey(t, keyByName(t, s, "d"), inOrg)
}

func testKeyPolicy(t *testing.T, opener Opener) {
	s := opener.open(t)
	key := newKey("key")
	insertKeys(t, s, key, newKey("other"))
	key.Policy = &ktmsv1.APIKeyPolicy{AllowedModels: []string{"gpt"}, RpmLimit: 5}
	change := update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.SetKeyPolicy(ctx, key.ID, key.Policy)
	})
	wantHashes(t, change, key.Hash)
	wantKey(t, keyByName(t, s, "key"), key)
	if other := keyByName(t, s, "other"); !proto.Equal(other.Policy, &ktmsv1.APIKeyPolicy{}) {
		t.Errorf("the other key's policy is %v", other.Policy)
	}
}

func testKeyRevoke(t *testing.T, opener Opener) {
	s := opener.open(t)
	key := newKey("key")
	insertKeys(t, s, key)
	key.RevokedAt = noon.Add(time.Minute)
	revoke := func(at time.Time) store.Change {
		return update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.RevokeKey(ctx, key.ID, at) })
	}
	first := revoke(key.RevokedAt)
	wantHashes(t, first, key.Hash)
	again := revoke(noon.Add(time.Hour))
	wantKey(t, keyByName(t, s, "key"), key)
	if again.Version != first.Version {
		t.Errorf("revoking again raised the version from %d to %d", first.Version, again.Version)
	}
}

func testKeyList(t *testing.T, opener Opener) {
	s := opener.open(t)
	// Names sort byte by byte, whatever the server's locale: upper case first, letters beyond ASCII last.
	sorted := []string{"B-2", "a-1", "b-3", "c.4", "z-5", "é-6"}
	for _, i := range []int{3, 0, 5, 2, 4, 1} {
		key := newKey(sorted[i])
		if sorted[i] == "b-3" {
			key.RevokedAt = noon
		}
		insertKeys(t, s, key)
	}
	for _, test := range []struct {
		after   string
		limit   int
		revoked bool
		want    []string
	}{
		{"", 100, true, sorted},
		{"", 100, false, []string{"B-2", "a-1", "c.4", "z-5", "é-6"}},
		{"", 2, true, []string{"B-2", "a-1"}},
		{"a-1", 2, true, []string{"b-3", "c.4"}},
		{"a-1", 2, false, []string{"c.4", "z-5"}},
		{"d", 100, true, []string{"z-5", "é-6"}},
		{"é-6", 100, true, []string{}},
		{"", 0, true, []string{}},
	} {
		keys, err := s.ListKeys(t.Context(), test.after, test.limit, test.revoked)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(keys); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%d after %q, revoked too %t: got %q, want %q", test.limit, test.after, test.revoked, got, test.want)
		}
	}
}

// tenantKeys inserts keys of one organization: two active ones in team a, one in team b, one in no team, and one of
// each revoked.
func tenantKeys(t *testing.T, s store.Store) (org store.Organization, a, b store.Team) {
	t.Helper()
	org = newOrganization("acme")
	a, b = newTeam(org.ID, "a"), newTeam(org.ID, "b")
	insertTenants(t, s, org, a, b)
	for _, of := range []struct {
		name, team string
		revoked    bool
	}{
		{"a1", a.ID, false}, {"a2", a.ID, false}, {"a-revoked", a.ID, true},
		{"b1", b.ID, false}, {"b-revoked", b.ID, true},
		{"org1", "", false}, {"org-revoked", "", true},
	} {
		key := newKey(of.name)
		key.OrgID, key.TeamID = org.ID, of.team
		if of.revoked {
			key.RevokedAt = noon
		}
		insertKeys(t, s, key)
	}
	return org, a, b
}

func testKeyActive(t *testing.T, opener Opener) {
	s := opener.open(t)
	org, a, b := tenantKeys(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, test := range []struct {
			org, team string
			want      int
		}{{org.ID, "", 4}, {org.ID, a.ID, 2}, {org.ID, b.ID, 1}, {org.ID, "nobody", 0}, {"nobody", "", 0}} {
			got, err := tx.ActiveKeys(ctx, test.org, test.team)
			if err != nil {
				return err
			}
			if got != test.want {
				t.Errorf("organization %s, team %q: got %d, want %d", test.org, test.team, got, test.want)
			}
		}
		return nil
	})
}

func testKeyDetach(t *testing.T, opener Opener) {
	s := opener.open(t)
	org, a, b := tenantKeys(t, s)
	detach := func(team string) store.Change {
		return update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.DetachKeys(ctx, org.ID, team) })
	}
	wantTenant := func(name, org, team string) {
		t.Helper()
		if key := keyByName(t, s, name); key.OrgID != org || key.TeamID != team {
			t.Errorf("%s belongs to %q, %q; want %q, %q", name, key.OrgID, key.TeamID, org, team)
		}
	}

	if change := detach(a.ID); !change.All {
		t.Errorf("detaching is the change %+v, want all", change)
	}
	wantTenant("a-revoked", org.ID, "")
	wantTenant("a1", org.ID, a.ID)
	wantTenant("b-revoked", org.ID, b.ID)

	first := detach("")
	wantTenant("a-revoked", "", "")
	wantTenant("b-revoked", "", "")
	wantTenant("org-revoked", "", "")
	wantTenant("b1", org.ID, b.ID)
	wantTenant("org1", org.ID, "")

	if again := detach(""); again.Version != first.Version {
		t.Errorf("detaching nothing raised the version from %d to %d", first.Version, again.Version)
	}
}

func wantHashes(t *testing.T, change store.Change, hashes ...[32]byte) {
	t.Helper()
	if change.All || !reflect.DeepEqual(change.KeyHashes, hashes) {
		t.Errorf("the change names %x (all %t), want %x", change.KeyHashes, change.All, hashes)
	}
}

// BenchmarkKeyByHash reads one key among a hundred.
func BenchmarkKeyByHash(b *testing.B, s store.Store) {
	keys := make([]store.Key, 100)
	for i := range keys {
		keys[i] = newKey(fmt.Sprint("key", i))
		keys[i].Policy = &ktmsv1.APIKeyPolicy{RpmLimit: 60, AllowedModels: []string{"gpt"}}
	}
	insertKeys(b, s, keys...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.KeyByHash(b.Context(), keys[7].Hash); err != nil {
			b.Fatal(err)
		}
	}
}
