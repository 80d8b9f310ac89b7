package storetest

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/ai-process/ktms/store"
)

var vendorKeyTests = []test{
	{"come back with the names of their keys", testVendorKeyRoundTrip},
	{"replace and delete", testVendorKeyReplace},
	{"of revoked keys are no longer configuration", testVendorKeyRevoked},
	{"need their key", testVendorKeyMissing},
}

func newVendorKey(key store.Key, vendor, sealed string) store.VendorKey {
	return store.VendorKey{
		KeyID: key.ID, KeyName: key.Name, Vendor: vendor, Sealed: []byte(sealed), Fingerprint: "0123456789abcdef",
		UpdatedAt: noon,
	}
}

func putVendorKeys(t testing.TB, s store.Store, keys ...store.VendorKey) store.Change {
	t.Helper()
	return update(t, s, func(ctx context.Context, tx store.Tx) error {
		for _, key := range keys {
			if err := tx.PutVendorKey(ctx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

func wantVendorKeys(t testing.TB, got []store.VendorKey, want ...store.VendorKey) {
	t.Helper()
	for i := range want {
		want[i].UpdatedAt = kept(want[i].UpdatedAt)
	}
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("vendor keys are\n%+v, want\n%+v", got, want)
	}
}

func allVendorKeys(t testing.TB, s store.Store) (all []store.VendorKey) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
		all, err = tx.AllVendorKeys(ctx)
		return err
	})
	return all
}

func testVendorKeyRoundTrip(t *testing.T, opener Opener) {
	s := opener.open(t)
	anna, bert := newKey("anna"), newKey("bert")
	insertKeys(t, s, bert, anna)
	one := newVendorKey(anna, "google", "\x00\xff\x01 not text")
	two, three := newVendorKey(anna, "openai", "2"), newVendorKey(bert, "anthropic", "3")
	change := putVendorKeys(t, s, three, two, one)
	if change.All || len(change.KeyHashes) > 0 {
		t.Errorf("the change is %+v, want no keys: they stay as they are", change)
	}
	wantVendorKeys(t, config(t, s).VendorKeys, one, two, three)
	wantVendorKeys(t, allVendorKeys(t, s), one, two, three)
}

func testVendorKeyReplace(t *testing.T, opener Opener) {
	s := opener.open(t)
	anna, bert := newKey("anna"), newKey("bert")
	insertKeys(t, s, anna, bert)
	putVendorKeys(t, s, newVendorKey(anna, "openai", "old"), newVendorKey(bert, "openai", "bert's"))

	replaced := newVendorKey(anna, "openai", "new")
	replaced.Fingerprint, replaced.UpdatedAt = "fedcba9876543210", noon.Add(time.Hour)
	putVendorKeys(t, s, replaced)
	wantVendorKeys(t, config(t, s).VendorKeys, replaced, newVendorKey(bert, "openai", "bert's"))

	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.DeleteVendorKey(ctx, anna.ID, "openai") })
	wantVendorKeys(t, config(t, s).VendorKeys, newVendorKey(bert, "openai", "bert's"))
}

func testVendorKeyRevoked(t *testing.T, opener Opener) {
	s := opener.open(t)
	anna, bert := newKey("anna"), newKey("bert")
	insertKeys(t, s, anna, bert)
	ofAnna, ofBert := newVendorKey(anna, "openai", "1"), newVendorKey(bert, "openai", "2")
	putVendorKeys(t, s, ofAnna, ofBert)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.RevokeKey(ctx, anna.ID, noon) })

	wantVendorKeys(t, config(t, s).VendorKeys, ofBert)
	wantVendorKeys(t, allVendorKeys(t, s), ofAnna, ofBert)
}

func testVendorKeyMissing(t *testing.T, opener Opener) {
	s := opener.open(t)
	key := newKey("key")
	insertKeys(t, s, key)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		wantErr(t, "no such key", tx.PutVendorKey(ctx, newVendorKey(newKey("nobody"), "openai", "1")), store.ErrNotFound)
		wantErr(t, "no such vendor", tx.DeleteVendorKey(ctx, key.ID, "openai"), store.ErrNotFound)
		return tx.PutVendorKey(ctx, newVendorKey(key, "openai", "1")) // the transaction goes on
	})
	wantVendorKeys(t, config(t, s).VendorKeys, newVendorKey(key, "openai", "1"))
}
