package storetest

import (
	"context"
	"reflect"
	"testing"

	"github.com/ai-process/ktms/store"
)

var tenantTests = []test{
	{"come back as they were written", testTenantRoundTrip},
	{"have unique names", testTenantUnique},
	{"are updated", testTenantUpdate},
	{"are deleted once nothing belongs to them", testTenantDelete},
}

func wantTenants(t *testing.T, s store.Store, orgs []store.Organization, teams []store.Team) {
	t.Helper()
	got := config(t, s)
	// Ordered by id, which is random here.
	byID := make(map[string]any)
	for _, org := range orgs {
		org.CreatedAt = kept(org.CreatedAt)
		byID[org.ID] = org
	}
	for _, team := range teams {
		team.CreatedAt = kept(team.CreatedAt)
		byID[team.ID] = team
	}
	if len(got.Organizations) != len(orgs) || len(got.Teams) != len(teams) {
		t.Fatalf("got %+v and %+v", got.Organizations, got.Teams)
	}
	for i, org := range got.Organizations {
		if !reflect.DeepEqual(any(org), byID[org.ID]) {
			t.Errorf("organization is %+v, want %+v", org, byID[org.ID])
		}
		if i > 0 && got.Organizations[i-1].ID >= org.ID {
			t.Errorf("organizations are not ordered by id: %+v", got.Organizations)
		}
	}
	for i, team := range got.Teams {
		if !reflect.DeepEqual(any(team), byID[team.ID]) {
			t.Errorf("team is %+v, want %+v", team, byID[team.ID])
		}
		if i > 0 && got.Teams[i-1].ID >= team.ID {
			t.Errorf("teams are not ordered by id: %+v", got.Teams)
		}
	}
}

func testTenantRoundTrip(t *testing.T, opener Opener) {
	s := opener.open(t)
	acme, zeta := newOrganization("acme"), newOrganization("zeta")
	plain, full := newTeam(acme.ID, "plain"), newTeam(acme.ID, "full")
	full.MonthlyBudgetNanoUSD = 1<<62 + 1
	full.AllowedModels = []string{"gpt", `"quoted", ünï`}
	// The same name in another organization is another team.
	same := newTeam(zeta.ID, "plain")
	insertTenants(t, s, acme, plain, full)
	insertTenants(t, s, zeta, same)
	wantTenants(t, s, []store.Organization{acme, zeta}, []store.Team{plain, full, same})
}

func testTenantUnique(t *testing.T, opener Opener) {
	s := opener.open(t)
	acme, zeta := newOrganization("acme"), newOrganization("zeta")
	search, ads := newTeam(acme.ID, "search"), newTeam(acme.ID, "ads")
	insertTenants(t, s, acme, search, ads)
	insertTenants(t, s, zeta)

	sameID, sameTeamID := newOrganization("other"), newTeam(acme.ID, "other")
	sameID.ID, sameTeamID.ID = acme.ID, search.ID
	renamed, renamedTeam := zeta, ads
	renamed.Name, renamedTeam.Name = "acme", "search"
	last := newTeam(zeta.ID, "search")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "same name", tx.InsertOrganization(ctx, newOrganization("acme")), store.ErrExists)
		wantErr(t, "same id", tx.InsertOrganization(ctx, sameID), store.ErrExists)
		wantErr(t, "rename to a name that is taken", tx.UpdateOrganization(ctx, renamed), store.ErrExists)
		wantErr(t, "same team", tx.InsertTeam(ctx, newTeam(acme.ID, "search")), store.ErrExists)
		wantErr(t, "same team id", tx.InsertTeam(ctx, sameTeamID), store.ErrExists)
		wantErr(t, "rename a team to a name that is taken", tx.UpdateTeam(ctx, renamedTeam), store.ErrExists)
		wantErr(t, "no such organization", tx.InsertTeam(ctx, newTeam("nobody", "search")), store.ErrNotFound)
		return tx.InsertTeam(ctx, last) // the transaction goes on
	})
	wantTenants(t, s, []store.Organization{acme, zeta}, []store.Team{search, ads, last})
}

func testTenantUpdate(t *testing.T, opener Opener) {
	s := opener.open(t)
	acme, zeta := newOrganization("acme"), newOrganization("zeta")
	team, other := newTeam(acme.ID, "search"), newTeam(acme.ID, "other")
	team.MonthlyBudgetNanoUSD, team.AllowedModels = 5, []string{"gpt"}
	insertTenants(t, s, acme, team, other)
	insertTenants(t, s, zeta)

	acme.Name, team.Name, team.MonthlyBudgetNanoUSD, team.AllowedModels = "Acme", "find", 0, nil
	moved := team
	moved.OrgID = zeta.ID // ignored
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "no such organization", tx.UpdateOrganization(ctx, newOrganization("x")), store.ErrNotFound)
		wantErr(t, "no such team", tx.UpdateTeam(ctx, newTeam(acme.ID, "x")), store.ErrNotFound)
		if err := tx.UpdateOrganization(ctx, acme); err != nil {
			return err
		}
		if err := tx.UpdateTeam(ctx, moved); err != nil {
			return err
		}
		return tx.UpdateTeam(ctx, other) // to the name that it has
	})
	wantTenants(t, s, []store.Organization{acme, zeta}, []store.Team{team, other})
}

func testTenantDelete(t *testing.T, opener Opener) {
	s := opener.open(t)
	org := newOrganization("acme")
	team := newTeam(org.ID, "search")
	insertTenants(t, s, org, team)
	key := newKey("key")
	key.OrgID, key.TeamID, key.RevokedAt = org.ID, team.ID, noon
	insertKeys(t, s, key)

	change := update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "no such organization", tx.DeleteOrganization(ctx, "nobody"), store.ErrNotFound)
		wantErr(t, "no such team", tx.DeleteTeam(ctx, "nobody"), store.ErrNotFound)
		wantErr(t, "a team with a key", tx.DeleteTeam(ctx, team.ID), store.ErrInUse)
		wantErr(t, "an organization with a team", tx.DeleteOrganization(ctx, org.ID), store.ErrInUse)
		if err := tx.DetachKeys(ctx, org.ID, team.ID); err != nil {
			return err
		}
		return tx.DeleteTeam(ctx, team.ID)
	})
	if !change.All || change.KeyHashes != nil {
		t.Errorf("deleting a team is the change %+v, want all", change)
	}
	wantTenants(t, s, []store.Organization{org}, nil)

	change = update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "an organization with a key", tx.DeleteOrganization(ctx, org.ID), store.ErrInUse)
		if err := tx.DetachKeys(ctx, org.ID, ""); err != nil {
			return err
		}
		return tx.DeleteOrganization(ctx, org.ID)
	})
	if !change.All {
		t.Errorf("deleting an organization is the change %+v, want all", change)
	}
	wantTenants(t, s, nil, nil)
	if got := keyByName(t, s, "key"); got.OrgID != "" || got.TeamID != "" {
		t.Errorf("the key still belongs to %q, %q", got.OrgID, got.TeamID)
	}
}
