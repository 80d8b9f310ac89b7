package storetest

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

// Upgrade is one empty database that a store is to be opened on.
type Upgrade struct {
	// Files are the migrations of this release.
	Files fs.FS
	// Migrate applies some to the database.
	Migrate func(files fs.FS) error
	// Bytes is what the database calls a column of bytes.
	Bytes string
	// Open opens the store, which applies the rest.
	Open func() store.Store
}

// firstRows are what the release with 0001 alone wrote; %[1]s is the type of bytes. They never change.
const firstRows = `
INSERT INTO organizations (id, name, created_at) VALUES ('o1', 'acme', '2026-05-04 10:30:15+00:00');
INSERT INTO teams (id, org_id, name, monthly_budget_nano_usd, allowed_models, created_at)
	VALUES ('t1', 'o1', 'search', 0, '["gpt"]', '2026-05-04 10:30:15+00:00');
INSERT INTO api_keys (id, name, hash, prefix, scopes, org_id, team_id, policy, created_at, revoked_at)
	VALUES ('k1', 'billing', CAST('01234567890123456789012345678901' AS %[1]s), 'ktms_1234', '["generate"]', 'o1', 't1',
	'{"allowedModels":["gpt"]}', '2026-05-04 10:30:15+00:00', NULL);
INSERT INTO vendor_keys (key_id, vendor, sealed, fingerprint, updated_at)
	VALUES ('k1', 'openai', CAST('sealed' AS %[1]s), '0123456789abcdef', '2026-05-04 10:30:15+00:00');
INSERT INTO models (id, spec) VALUES ('gpt', '{"id":"gpt", "vendor":"openai", "rpm":60, "enabled":true}');
INSERT INTO rules (ordinal, priority, spec)
	VALUES (0, 1, '{"name":"all", "priority":1, "use":["gpt"], "enabled":true}');
UPDATE config_version SET version = 41;
`

// RunUpgrade wants the rows of the first release to be there after all later migrations, and what those are for to work
// beside them.
func RunUpgrade(t *testing.T, u Upgrade) {
	first, err := fs.ReadFile(u.Files, "0001_init.sql")
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Migrate(fstest.MapFS{
		"0001_init.sql":  {Data: first},
		"0001_zrows.sql": {Data: fmt.Appendf(nil, firstRows, u.Bytes)},
	}); err != nil {
		t.Fatal(err)
	}

	s := u.Open()
	got := config(t, s)
	if got.Version != 41 || len(got.Organizations) != 1 || len(got.Teams) != 1 || got.Teams[0].Name != "search" ||
		len(got.VendorKeys) != 1 || string(got.VendorKeys[0].Sealed) != "sealed" {
		t.Errorf("the configuration is %+v", got)
	}
	wantMessages(t, got.Models, []*ktmsv1.ModelSpec{{Id: "gpt", Vendor: "openai", Rpm: 60, Enabled: true}})
	wantMessages(t, got.Rules, []*ktmsv1.RuleSpec{{Name: "all", Priority: 1, Use: []string{"gpt"}, Enabled: true}})
	wantLimits(t, s, nil, nil)
	key, err := s.KeyByHash(t.Context(), [32]byte([]byte("01234567890123456789012345678901")))
	if err != nil || key.Name != "billing" || key.TeamID != "t1" ||
		!proto.Equal(key.Policy, &ktmsv1.APIKeyPolicy{AllowedModels: []string{"gpt"}}) {
		t.Errorf("the key is %+v, %v", key, err)
	}

	spend, user := spendLimit("key", "billing", "day", 5), userLimit("*", "gpt", 60, 0)
	putSpendLimits(t, s, spend)
	change := putUserLimits(t, s, user)
	wantLimits(t, s, []*ktmsv1.SpendLimit{spend}, []*ktmsv1.UserRateLimit{user})
	if change.Version != 43 {
		t.Errorf("two changes after version 41 lead to %d", change.Version)
	}
	node := newNodeKey("mac", "mac")
	insertNodeKeys(t, s, node)
	wantNodeKey(t, s, node)
	wantLimits(t, u.Open(), []*ktmsv1.SpendLimit{spend}, []*ktmsv1.UserRateLimit{user}) // the migrations pass over
}
