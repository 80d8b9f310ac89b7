package servertest_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/seal"
)

// rotating are servers that share a store and a pool, and of which each has its own keyring.
type rotating struct {
	*joined
	start func(versions ...int) *joined
	// ring makes a keyring of some versions.
	ring func(versions ...int) *seal.Keyring
}

// rotate starts a server with version 1, on which a client has a vendor key and the node mac is registered.
func rotate(t *testing.T) *rotating {
	t.Helper()
	st := servertest.SQLite(t)
	var keys []string
	for range 3 {
		keys = append(keys, strings.TrimPrefix(seal.GenerateKeyring(), "1:"))
	}
	r := &rotating{}
	r.ring = func(versions ...int) *seal.Keyring {
		var entries []string
		for _, v := range versions {
			entries = append(entries, string(rune('0'+v))+":"+keys[v-1])
		}
		ring, err := seal.ParseKeyring(strings.Join(entries, ","))
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	r.start = func(versions ...int) *joined {
		return withMachines(t, func(o *server.Options) {
			o.Store, o.Sealer = st, r.ring(versions...)
			if r.joined != nil {
				o.Nodes = r.machines
			}
		})
	}
	r.joined = r.start(1)
	r.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", "http://127.0.0.1:1")}})
	r.join(t, "mac", "gemma")
	return r
}

// version is that of the one vendor key.
func (j *joined) version(t *testing.T) int32 {
	t.Helper()
	list, err := j.Admin.ListVendorKeys(t.Context(), &ktmsv1.ListVendorKeysRequest{})
	if err != nil || len(list.GetVendorKeys()) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	return list.GetVendorKeys()[0].GetKeyVersion()
}

func TestNodes_RotateEncryption(t *testing.T) {
	r := rotate(t)
	if _, err := r.registry(t, mintNode(t, r.Instance, "open", "open")).RegisterNode(t.Context(),
		&ktmsv1.RegisterNodeRequest{NodeId: "open", Engine: "vllm", Endpoint: "http://gpu.example.com/v1"}); err != nil {
		t.Fatal(err) // a node without a token has nothing to seal
	}
	both := r.start(1, 2)
	for _, want := range []int32{1, 0} {
		got, err := both.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
		if err != nil || got.GetVendorKeysChanged() != want || got.GetNodeTokensChanged() != want || got.GetKeyVersion() != 2 {
			t.Fatalf("got %v, %v; want %d changed", got, err, want)
		}
	}
	if plain, err := admin.OpenNodeToken(r.ring(2), "mac", r.sealedToken(t, "mac")); err != nil || string(plain) != nodeToken {
		t.Errorf("with the new version alone the token opens as %q, %v", plain, err)
	}
	if token := r.sealedToken(t, "open"); len(token) > 0 {
		t.Errorf("a node without a token has one now: %q", token)
	}
}

// TestNodes_RotateEncryption_ATokenThatCannotBeOpened leaves the vendor keys as they were, although those could be.
func TestNodes_RotateEncryption_ATokenThatCannotBeOpened(t *testing.T) {
	r := rotate(t)
	if _, err := r.start(1, 2).Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.registry(t, mintNode(t, r.Instance, "mac-2", "mac")).RegisterNode(t.Context(), node("mac", "gemma")); err != nil {
		t.Fatal(err) // through a replica that knows only version 1
	}
	former := r.sealedToken(t, "mac")
	late := r.start(2, 3)
	_, err := late.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
	wantCode(t, "the version of the token is gone", err, connect.CodeFailedPrecondition, `token of node "mac"`, "no version 1", "nothing was changed", "register anew")
	if got := late.version(t); got != 2 {
		t.Errorf("the vendor key has version %d, want the former one", got)
	}
	if !bytes.Equal(former, r.sealedToken(t, "mac")) {
		t.Error("the token changed")
	}
}

func TestNodes_RotateEncryption_PoolAway(t *testing.T) {
	r := rotate(t)
	both := r.start(1, 2)
	r.machines.away.Store(true)
	_, err := both.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
	wantCode(t, "nobody can tell which tokens there are", err, connect.CodeUnavailable, "nothing was changed")
	r.machines.away.Store(false)
	if got := both.version(t); got != 1 {
		t.Errorf("the vendor key has version %d, want the former one", got)
	}

	failing := func() error { return errors.New("lost") }
	r.machines.resealing.Store(&failing)
	_, err = both.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
	wantCode(t, "the pool goes away halfway", err, connect.CodeUnavailable, "vendor keys were sealed anew", "call again")
	r.machines.resealing.Store(nil)
	got, err := both.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
	if err != nil || got.GetVendorKeysChanged() != 0 || got.GetNodeTokensChanged() != 1 {
		t.Errorf("called again: %v, %v", got, err)
	}
}

// TestNodes_RotateEncryption_ANodeRegistersMeanwhile keeps the token that the node brought last.
func TestNodes_RotateEncryption_ANodeRegistersMeanwhile(t *testing.T) {
	r := rotate(t)
	both := r.start(1, 2)
	registry := both.registry(t, mintNode(t, r.Instance, "mac-2", "mac"))
	registers := func() error {
		again := node("mac", "gemma")
		again.AuthToken = "the-next-one"
		_, err := registry.RegisterNode(t.Context(), again)
		return err
	}
	r.machines.resealing.Store(&registers)
	got, err := both.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
	if err != nil || got.GetNodeTokensChanged() != 0 || got.GetVendorKeysChanged() != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if plain, err := admin.OpenNodeToken(r.ring(2), "mac", r.sealedToken(t, "mac")); err != nil || string(plain) != "the-next-one" {
		t.Errorf("the token is %q, %v", plain, err)
	}
}
