// Package servertest starts the real server for tests: real listeners, a real store, real dialects. Only the vendor's
// HTTP endpoint is scripted.
package servertest

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/seal"
	"github.com/ai-process/ktms/store/sqlite"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/anthropic"
	"github.com/ai-process/ktms/vendors/bedrock"
	"github.com/ai-process/ktms/vendors/gemini"
	"github.com/ai-process/ktms/vendors/openai"
)

// AdminKey is the bootstrap key of every test server.
const AdminKey = "test-bootstrap"

// stopTimeout bounds the end of a test server; calls still open then are a test's mistake.
const stopTimeout = 10 * time.Second

// Instance is a running server.
type Instance struct {
	// HTTP and GRPC are base URLs, without a slash at the end.
	HTTP, GRPC string
	// Metrics are the server's own.
	Metrics *server.Metrics
	Store   store.Store
	Admin   ktmsv1connect.AdminServiceClient
	// Stop is what SIGTERM does; it returns at once.
	Stop func()
}

// SQLite opens a store in a temporary file.
func SQLite(t testing.TB) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "ktms.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// Keyring makes a keyring.
func Keyring(t testing.TB) *seal.Keyring {
	t.Helper()
	keyring, err := seal.ParseKeyring(seal.GenerateKeyring())
	if err != nil {
		t.Fatal(err)
	}
	return keyring
}

// Defaults are the settings of a test server: those of the product on ports of its own choice.
func Defaults(t testing.TB) server.Options {
	compatible := openai.New(openai.Options{Version: "test"})
	speaking := map[string]vendors.Vendor{}
	for _, name := range []string{vendors.OpenAI, vendors.DeepSeek, vendors.Groq, vendors.Mistral, vendors.Azure, vendors.Ollama} {
		speaking[name] = compatible
	}
	speaking[vendors.Anthropic] = anthropic.New(anthropic.Options{Version: "test"})
	speaking[vendors.Google] = gemini.New(gemini.Options{Version: "test"})
	speaking[vendors.Bedrock] = bedrock.New(bedrock.Options{Version: "test"})
	return server.Options{
		Sealer: Keyring(t), Vendors: speaking, Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Metrics: server.NewMetrics(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0",
		APIEnabled: true, APITimeout: time.Minute, MaxBody: 32 << 20, MaxMessage: 16 << 20, LegacyHeaders: true,
		BootstrapKey: AdminKey, StaleIfError: time.Minute, StoreTimeout: 3 * time.Second, ReloadEvery: time.Minute,
		Breaker:         dispatch.HealthOptions{Threshold: 5, Cooldown: 30 * time.Second, MaxPause: time.Minute},
		ShutdownTimeout: stopTimeout, Limits: server.Limits{Grace: 0.05, OutputReserve: 4096},
	}
}

// Start runs a server until the test ends. Without a store it gets one of its own.
func Start(t testing.TB, options server.Options) *Instance {
	t.Helper()
	if options.Store == nil {
		options.Store = SQLite(t)
	}
	if options.Meter == nil {
		options.Meter = memory.New(memory.Options{})
	}
	pooled(t, &options)
	s, err := server.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the server ended with: %v", err)
			}
		case <-time.After(stopTimeout + 5*time.Second):
			t.Error("the server did not end")
		}
	})
	i := &Instance{HTTP: "http://" + s.Addr("http"), GRPC: "http://" + s.Addr("grpc"), Metrics: options.Metrics, Store: options.Store, Stop: cancel}
	i.Admin = ktmsv1connect.NewAdminServiceClient(i.Client(t, AdminKey))
	return i
}

// Client dials the RPC door with a key; options choose the protocol, Connect with binary messages by default.
func (i *Instance) Client(t testing.TB, key string, options ...connecthttp.Option) *connect.Client {
	transport := H2C()
	t.Cleanup(transport.CloseIdleConnections)
	bearer := func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			if info, ok := connect.CallInfoForClientContext(ctx); ok && key != "" {
				info.RequestHeader().Set("Authorization", "Bearer "+key)
			}
			return next(ctx, spec)
		}
	}
	return connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, i.GRPC, options...), bearer)
}

// H2C is a transport that speaks HTTP/2 without TLS, as gRPC needs it.
func H2C() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}

// Setup is what a test configures.
type Setup struct {
	// Key is the name of the client key; it gets a vendor key for every vendor among the models.
	Key    string
	Models []*ktmsv1.ModelSpec
	// Rules default to one catch-all over all models in order.
	Rules []*ktmsv1.RuleSpec
}

// Configure sets up a server through its own control plane and returns the plain client key.
func (i *Instance) Configure(t testing.TB, s Setup) string {
	t.Helper()
	ctx := t.Context()
	if s.Key == "" {
		s.Key = "client"
	}
	minted, err := i.Admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: s.Key, Scopes: []string{"generate"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Rules == nil {
		all := &ktmsv1.RuleSpec{Name: "all", Priority: 1, Enabled: true}
		for _, m := range s.Models {
			all.Use = append(all.Use, m.GetId())
		}
		s.Rules = []*ktmsv1.RuleSpec{all}
	}
	given := map[string]bool{}
	for _, m := range s.Models {
		if _, err := i.Admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: m}); err != nil {
			t.Fatal(err)
		}
		if given[m.GetVendor()] {
			continue
		}
		given[m.GetVendor()] = true
		if _, err := i.Admin.SetVendorKey(ctx, &ktmsv1.SetVendorKeyRequest{ApiKeyName: s.Key, Vendor: m.GetVendor(), PlainKey: vendorKey(m.GetVendor())}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := i.Admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{Rules: s.Rules}); err != nil {
		t.Fatal(err)
	}
	return minted.GetPlainKey()
}

// vendorKey is VendorKey in the form that a vendor wants.
func vendorKey(vendor string) string {
	if vendor == vendors.Bedrock {
		return "AKIACANARYQRSTUVWXYZ:" + VendorKey + ":eu-west-3"
	}
	return VendorKey
}

// VendorKey is the credential of every test client: a canary that must never be seen anywhere but at the vendor.
const VendorKey = "sk-canary-0123456789abcdef"

// Model is an enabled model of the OpenAI dialect at an endpoint.
func Model(id, endpoint string) *ktmsv1.ModelSpec {
	return &ktmsv1.ModelSpec{Id: id, Vendor: vendors.OpenAI, Endpoint: endpoint, Enabled: true}
}
