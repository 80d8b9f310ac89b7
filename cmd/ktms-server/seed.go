package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/seal"
	"github.com/ai-process/ktms/vendors"
)

// seedRule starts the names of seeded rules.
const seedRule = "seed-"

// vendorSeed is what the environment says of one vendor.
type vendorSeed struct {
	vendor, key, endpoint string
}

// seeding is what a start wants to find in the store.
type seeding struct {
	clientName, clientKey string
	// keys are the vendor keys of the client.
	keys map[string]string
	// models are inserted where they are missing; chains are the rules over them, per effort.
	models []*ktmsv1.ModelSpec
	chains map[ktmsv1.Effort][]string
	// left is the imprint of what an earlier start of dev seeded, leaves that of what this one did; empty for nothing.
	left, leaves string
}

// seedPlan decides what to seed: the vendors whose keys are given, in dev also what this machine serves, and the
// demonstration model when there is nothing else.
func seedPlan(ctx context.Context, cfg config, log *slog.Logger) *seeding {
	s := &seeding{clientName: cfg.SeedClientName, clientKey: cfg.SeedClientKey, keys: map[string]string{}, chains: map[ktmsv1.Effort][]string{}}
	seeds := cfg.vendorSeeds()
	for _, v := range seeds {
		if v.key != "" {
			s.keys[v.vendor] = v.key
			s.addCloud(v)
		}
	}
	if cfg.dev {
		for _, e := range discover(ctx, cfg.places) {
			log.Info("found a local engine", "engine", e.name, "models", len(e.models))
			s.keys[vendors.Ollama] = "local" // the engine asks for none, the contract for some
			s.addLocal(e.models)
		}
		if len(s.models) == 0 {
			log.Info("found neither a vendor key nor a local engine: offering the built-in demo-echo")
			s.addLocal([]*ktmsv1.ModelSpec{{Id: "demo-echo", Vendor: vendors.Demo, Enabled: true}})
		}
	} else if len(s.models) == 0 {
		// A vendor key may come later, by SetVendorKey; until then calls say no_vendor_key.
		for _, v := range seeds {
			s.addCloud(v)
		}
	}
	return s
}

func (s *seeding) addCloud(v vendorSeed) {
	for _, e := range catalogue {
		if e.vendor != v.vendor {
			continue
		}
		s.models = append(s.models, e.spec(v.endpoint))
		for _, effort := range e.efforts {
			s.chains[effort] = append(s.chains[effort], e.id)
		}
	}
}

func (s *seeding) addLocal(models []*ktmsv1.ModelSpec) {
	for _, m := range models {
		if slices.ContainsFunc(s.models, func(other *ktmsv1.ModelSpec) bool { return other.GetId() == m.GetId() }) {
			continue // two engines serve it; the first one found does
		}
		s.models = append(s.models, m)
		if slices.Contains(m.GetCapabilities(), "embedding") {
			continue
		}
		for _, effort := range []ktmsv1.Effort{low, medium, high} {
			s.chains[effort] = append(s.chains[effort], m.GetId())
		}
	}
}

// rules are one catch-all per effort.
func (s *seeding) rules() []*ktmsv1.RuleSpec {
	var rules []*ktmsv1.RuleSpec
	for i, effort := range []ktmsv1.Effort{low, medium, high} {
		name := strings.ToLower(strings.TrimPrefix(effort.String(), "EFFORT_"))
		if chain := s.chains[effort]; len(chain) > 0 {
			rules = append(rules, &ktmsv1.RuleSpec{Name: seedRule + name, Priority: int32(i + 1), Effort: effort, Use: chain, Enabled: true})
		}
	}
	return rules
}

// seed brings the store in step in one transaction: nothing of it shows unless all of it is valid.
func seed(ctx context.Context, st store.Store, keyring *seal.Keyring, want *seeding, stderr io.Writer) error {
	generated := ""
	_, err := st.Update(ctx, func(ctx context.Context, tx store.Tx) error {
		generated = ""
		key, err := tx.KeyByName(ctx, want.clientName)
		if errors.Is(err, store.ErrNotFound) {
			plain := want.clientKey
			if plain == "" {
				plain = admin.NewPlainKey()
				generated = plain
			}
			key = admin.NewKey(want.clientName, plain, []string{caller.ScopeGenerate})
			err = tx.InsertKey(ctx, key)
		}
		if err != nil {
			return err
		}
		if err := stillWorks(key, want); err != nil {
			return err
		}
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		if err := seedVendorKeys(ctx, tx, keyring, key, cfg, want); err != nil {
			return err
		}
		return seedRouting(ctx, tx, cfg, want)
	})
	if err == nil && generated != "" {
		// Printed, not logged: logs are kept and shipped, and hold no key.
		fmt.Fprintf(stderr, "ktms-server: made up the client key %s, which is shown this once: %s\n", want.clientName, generated)
	}
	return err
}

// stillWorks refuses to promise a key that the store does not take.
func stillWorks(key store.Key, want *seeding) error {
	switch {
	case !key.RevokedAt.IsZero():
		return fmt.Errorf("the client key %q is revoked; set SEED_CLIENT_NAME to seed another", key.Name)
	case want.clientKey != "" && key.Hash != sha256.Sum256([]byte(want.clientKey)):
		return fmt.Errorf("the client key %q exists with another value than SEED_CLIENT_KEY; unset it, or set SEED_CLIENT_NAME to seed another", key.Name)
	}
	return nil
}

func seedVendorKeys(ctx context.Context, tx store.Tx, keyring *seal.Keyring, key store.Key, cfg *store.Config, want *seeding) error {
	for vendor, plain := range want.keys {
		fingerprint := store.Fingerprint(vendor, plain)
		if slices.ContainsFunc(cfg.VendorKeys, func(k store.VendorKey) bool {
			return k.KeyID == key.ID && k.Vendor == vendor && k.Fingerprint == fingerprint
		}) {
			continue
		}
		if err := tx.PutVendorKey(ctx, admin.SealVendorKey(keyring, key, vendor, plain)); err != nil {
			return err
		}
	}
	return nil
}

// seedRouting puts models and rules into a store that has none, or whose models and rules are exactly what an earlier
// start of dev left there. One change by an operator, and they are the operator's.
func seedRouting(ctx context.Context, tx store.Tx, cfg *store.Config, want *seeding) error {
	configured := len(cfg.Models) > 0 || len(cfg.Rules) > 0
	rules := want.rules()
	if configured && (want.left == "" || want.left != imprint(cfg)) || len(rules) == 0 {
		return nil
	}
	for _, m := range want.models {
		if err := tx.PutModel(ctx, m); err != nil {
			return err
		}
	}
	if err := tx.ReplaceRules(ctx, rules); err != nil {
		return err
	}
	after, err := tx.Config(ctx)
	if err != nil {
		return err
	}
	want.leaves = imprint(after)
	_, err = routing.Compile(after, nil)
	return err
}

// imprint identifies a state of models and rules.
func imprint(cfg *store.Config) string {
	sum := sha256.New()
	exact := proto.MarshalOptions{Deterministic: true}
	add := func(m proto.Message) {
		text, _ := exact.Marshal(m) // messages read from a store can be written
		_, _ = fmt.Fprintf(sum, "%d:", len(text))
		_, _ = sum.Write(text)
	}
	for _, m := range cfg.Models {
		add(m)
	}
	for _, r := range cfg.Rules {
		add(r)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
