package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/access"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// MintAPIKey implements AdminService.
func (h *Handler) MintAPIKey(ctx context.Context, req *ktmsv1.MintAPIKeyRequest) (*ktmsv1.MintAPIKeyResponse, error) {
	plain := NewPlainKey()
	key := NewKey(req.GetName(), plain, req.GetScopes())
	key.OrgID, key.TeamID = req.GetOrgId(), req.GetTeamId()
	if req.GetPolicy() != nil {
		key.Policy = req.GetPolicy()
	}
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		if err := bindTenant(ctx, tx, &key); err != nil {
			return err
		}
		if former, err := tx.KeyByName(ctx, key.Name); err == nil && !former.RevokedAt.IsZero() {
			return keepsItsName("API key", key.Name)
		}
		return named(tx.InsertKey(ctx, key), "API key", key.Name)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.MintAPIKeyResponse{PlainKey: plain, ApiKey: apiKey(key), ConfigVersion: version}, nil
}

// NewPlainKey makes up a client key.
func NewPlainKey() string { return plainKey(access.KeyPrefix) }

// plainKey makes up a key of the kind that a prefix stands for.
func plainKey(prefix string) string {
	random := make([]byte, keyBytes)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the program instead
	return prefix + hex.EncodeToString(random)
}

// NewKey returns the row of a plain key that is about to be stored.
func NewKey(name, plain string, scopes []string) store.Key {
	return store.Key{
		ID: uuid.Must(uuid.NewV7()).String(), Name: name, Hash: sha256.Sum256([]byte(plain)),
		Prefix: plain[:min(prefixLength, len(plain))], Scopes: scopes, Policy: &ktmsv1.APIKeyPolicy{}, CreatedAt: now(),
	}
}

// bindTenant checks the organization and team that a new key names.
func bindTenant(ctx context.Context, tx store.Tx, key *store.Key) error {
	if key.OrgID == "" && key.TeamID == "" {
		return nil
	}
	if slices.Contains(key.Scopes, caller.ScopeAdminRead) {
		return status.Invalid([]status.Violation{{Path: "scopes", Text: "an admin:read key sees every tenant, so it cannot belong to an organization or team"}})
	}
	cfg, err := tx.Config(ctx)
	if err != nil {
		return err
	}
	if key.TeamID != "" {
		i := slices.IndexFunc(cfg.Teams, func(t store.Team) bool { return t.ID == key.TeamID })
		if i < 0 {
			return status.New(status.NotFound, "no team %q", key.TeamID)
		}
		if key.OrgID == "" {
			key.OrgID = cfg.Teams[i].OrgID
		}
		if key.OrgID != cfg.Teams[i].OrgID {
			return status.Invalid([]status.Violation{{Path: "team_id", Text: "belongs to another organization"}})
		}
	}
	if !slices.ContainsFunc(cfg.Organizations, func(o store.Organization) bool { return o.ID == key.OrgID }) {
		return status.New(status.NotFound, "no organization %q", key.OrgID)
	}
	return nil
}

// ListAPIKeys implements AdminService.
func (h *Handler) ListAPIKeys(ctx context.Context, req *ktmsv1.ListAPIKeysRequest) (*ktmsv1.ListAPIKeysResponse, error) {
	keys, next, err := listedPage(ctx, h, req, h.options.Store.ListKeys, func(key store.Key) string { return key.Name })
	if err != nil {
		return nil, err
	}
	out := &ktmsv1.ListAPIKeysResponse{NextPageToken: next}
	for _, key := range keys {
		out.ApiKeys = append(out.ApiKeys, apiKey(key))
	}
	return out, nil
}

// RevokeAPIKey implements AdminService. Revoking a revoked key changes nothing.
func (h *Handler) RevokeAPIKey(ctx context.Context, req *ktmsv1.RevokeAPIKeyRequest) (*ktmsv1.RevokeAPIKeyResponse, error) {
	var key store.Key
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) (err error) {
		if key, err = findKey(ctx, tx, req.GetName(), req.GetId()); err != nil || !key.RevokedAt.IsZero() {
			return err
		}
		key.RevokedAt = now()
		return tx.RevokeKey(ctx, key.ID, key.RevokedAt)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.RevokeAPIKeyResponse{ApiKey: apiKey(key), ConfigVersion: version}, nil
}

func findKey(ctx context.Context, tx store.Tx, name, id string) (store.Key, error) {
	if id != "" {
		key, err := tx.KeyByID(ctx, id)
		return key, named(err, "API key", id)
	}
	key, err := tx.KeyByName(ctx, name)
	return key, named(err, "API key", name)
}

// SetAPIKeyPolicy implements AdminService.
func (h *Handler) SetAPIKeyPolicy(ctx context.Context, req *ktmsv1.SetAPIKeyPolicyRequest) (*ktmsv1.SetAPIKeyPolicyResponse, error) {
	policy := req.GetPolicy()
	if policy == nil {
		policy = &ktmsv1.APIKeyPolicy{}
	}
	var key store.Key
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) (err error) {
		if key, err = findKey(ctx, tx, req.GetName(), ""); err != nil {
			return err
		}
		key.Policy = policy
		return tx.SetKeyPolicy(ctx, key.ID, policy)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.SetAPIKeyPolicyResponse{ApiKey: apiKey(key), ConfigVersion: version}, nil
}

func apiKey(key store.Key) *ktmsv1.APIKey {
	out := &ktmsv1.APIKey{Id: key.ID, Name: key.Name, Prefix: key.Prefix, Scopes: key.Scopes, OrgId: key.OrgID,
		TeamId: key.TeamID, Policy: key.Policy, CreatedAt: timestamppb.New(key.CreatedAt)}
	if !key.RevokedAt.IsZero() {
		out.RevokedAt = timestamppb.New(key.RevokedAt)
	}
	return out
}
