package sqlstore

import (
	"context"
	"fmt"

	"github.com/ai-process/ktms/store"
)

// AllVendorKeys returns those of revoked keys too. No lock is needed: every other writer waits for this transaction.
func (t *Tx) AllVendorKeys(ctx context.Context) ([]store.VendorKey, error) {
	keys, err := collect(ctx, t.q, scanVendorKey, `SELECT `+vendorKeyColumns+` ORDER BY k.name, v.vendor`)
	if err != nil {
		return nil, fmt.Errorf("vendor keys: %w", err)
	}
	return keys, nil
}

// PutVendorKey inserts or replaces.
func (t *Tx) PutVendorKey(ctx context.Context, key store.VendorKey) error {
	err := t.require(ctx, store.ErrNotFound, `SELECT COUNT(*) FROM api_keys WHERE id = $1`, key.KeyID)
	if err == nil {
		_, err = t.write(ctx, `
			INSERT INTO vendor_keys (key_id, vendor, sealed, fingerprint, updated_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (key_id, vendor) DO UPDATE
			SET sealed = excluded.sealed, fingerprint = excluded.fingerprint, updated_at = excluded.updated_at`,
			key.KeyID, key.Vendor, key.Sealed, key.Fingerprint, instant(key.UpdatedAt))
	}
	if err != nil {
		return fmt.Errorf("put %s key of key %s: %w", key.Vendor, key.KeyID, err)
	}
	return nil
}

// DeleteVendorKey removes one.
func (t *Tx) DeleteVendorKey(ctx context.Context, keyID, vendor string) error {
	err := t.writeOne(ctx, store.ErrNotFound, `DELETE FROM vendor_keys WHERE key_id = $1 AND vendor = $2`, keyID, vendor)
	if err != nil {
		return fmt.Errorf("delete %s key of key %s: %w", vendor, keyID, err)
	}
	return nil
}
