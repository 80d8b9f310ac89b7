package admin

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// SetVendorKey implements AdminService.
func (h *Handler) SetVendorKey(ctx context.Context, req *ktmsv1.SetVendorKeyRequest) (*ktmsv1.SetVendorKeyResponse, error) {
	var stored store.VendorKey
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		key, err := findKey(ctx, tx, req.GetApiKeyName(), "")
		if err != nil {
			return err
		}
		if !key.RevokedAt.IsZero() {
			return status.New(status.FailedPrecondition, "API key %q is revoked", key.Name)
		}
		stored = SealVendorKey(h.options.Sealer, key, req.GetVendor(), req.GetPlainKey())
		return tx.PutVendorKey(ctx, stored)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.SetVendorKeyResponse{VendorKey: h.vendorKeyInfo(stored), ConfigVersion: version}, nil
}

// SealVendorKey returns the row of a credential that is about to be stored.
func SealVendorKey(sealer Sealer, key store.Key, vendor, plain string) store.VendorKey {
	row := store.VendorKey{KeyID: key.ID, KeyName: key.Name, Vendor: vendor,
		Fingerprint: store.Fingerprint(vendor, plain), UpdatedAt: now()}
	row.Sealed = sealer.Seal([]byte(plain), row.AAD())
	return row
}

// DeleteVendorKey implements AdminService.
func (h *Handler) DeleteVendorKey(ctx context.Context, req *ktmsv1.DeleteVendorKeyRequest) (*ktmsv1.DeleteVendorKeyResponse, error) {
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		key, err := findKey(ctx, tx, req.GetApiKeyName(), "")
		if err != nil {
			return err
		}
		return named(tx.DeleteVendorKey(ctx, key.ID, req.GetVendor()), "vendor key", key.Name+"/"+req.GetVendor())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.DeleteVendorKeyResponse{ConfigVersion: version}, nil
}

// ListVendorKeys implements AdminService.
func (h *Handler) ListVendorKeys(ctx context.Context, req *ktmsv1.ListVendorKeysRequest) (*ktmsv1.ListVendorKeysResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	wanted := make([]store.VendorKey, 0, len(cfg.VendorKeys))
	for _, key := range cfg.VendorKeys {
		if req.GetApiKeyName() == "" || req.GetApiKeyName() == key.KeyName {
			wanted = append(wanted, key)
		}
	}
	page, next, err := pageOf(wanted, req.GetPageSize(), req.GetPageToken(), func(k store.VendorKey) string { return k.KeyName + "\x00" + k.Vendor })
	if err != nil {
		return nil, err
	}
	return &ktmsv1.ListVendorKeysResponse{VendorKeys: h.vendorKeyInfos(page), NextPageToken: next}, nil
}

// RotateEncryption implements AdminService. One credential or token that the keyring cannot open leaves everything as it
// was. The tokens of nodes are not in the store: they follow once its transaction is through.
func (h *Handler) RotateEncryption(ctx context.Context, req *ktmsv1.RotateEncryptionRequest) (*ktmsv1.RotateEncryptionResponse, error) {
	sealer := h.options.Sealer
	tokens, err := h.sealTokens(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	changed := 0
	_, err = h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		changed = 0
		keys, err := tx.AllVendorKeys(ctx)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if version, err := sealer.Version(key.Sealed); err == nil && version == sealer.Newest() {
				continue
			}
			plain, err := sealer.Open(key.Sealed, key.AAD())
			if err != nil {
				return status.Wrap(err, status.FailedPrecondition,
					"the keyring cannot open the %s key of API key %q: %v; nothing was changed", key.Vendor, key.KeyName, err)
			}
			key.Sealed = sealer.Seal(plain, key.AAD())
			if err := tx.PutVendorKey(ctx, key); err != nil {
				return err
			}
			changed++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	tokensChanged, err := h.storeTokens(ctx, tokens)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	return &ktmsv1.RotateEncryptionResponse{VendorKeysChanged: int32(changed), NodeTokensChanged: int32(tokensChanged),
		KeyVersion: int32(sealer.Newest())}, nil
}

func (h *Handler) vendorKeyInfos(keys []store.VendorKey) []*ktmsv1.VendorKeyInfo {
	out := make([]*ktmsv1.VendorKeyInfo, 0, len(keys))
	for _, key := range keys {
		out = append(out, h.vendorKeyInfo(key))
	}
	return out
}

func (h *Handler) vendorKeyInfo(key store.VendorKey) *ktmsv1.VendorKeyInfo {
	version, _ := h.options.Sealer.Version(key.Sealed) // 0 where the header cannot be read
	return &ktmsv1.VendorKeyInfo{ApiKeyName: key.KeyName, Vendor: key.Vendor, Fingerprint: key.Fingerprint,
		KeyVersion: int32(version), UpdatedAt: timestamppb.New(key.UpdatedAt)}
}
