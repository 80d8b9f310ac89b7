package servertest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/postgres"
	"github.com/ai-process/ktms/store/storetest"
)

// replicas starts two servers on one Postgres.
func replicas(t *testing.T) (a, b *servertest.Instance) {
	t.Helper()
	dsn := storetest.Postgres(t)
	keyring := servertest.Keyring(t)
	start := func() *servertest.Instance {
		st, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		options := servertest.Defaults(t)
		options.Store, options.Sealer = st, keyring
		options.ReloadEvery = time.Hour // what follows within a second follows by push
		return servertest.Start(t, options)
	}
	return start(), start()
}

func TestReplicas_FollowEachOtherWithinASecond(t *testing.T) {
	a, b := replicas(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`))
	}))
	t.Cleanup(upstream.Close)
	key := a.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", upstream.URL), servertest.Model("n", upstream.URL)}})

	onB := ktmsv1connect.NewGatewayServiceClient(b.Client(t, key))
	resolved := func() string {
		r, err := onB.GenerateText(t.Context(), lowRequest)
		if err != nil {
			return "error: " + connect.CodeOf(err).String()
		}
		return r.GetResolvedModel()
	}
	storetest.Eventually(t, time.Second, "a key, its credential, models and rules made on A serve on B", func() bool { return resolved() == "m" })

	rule := &ktmsv1.RuleSpec{Name: "turned", Priority: 1, Use: []string{"n", "m"}, Enabled: true}
	if _, err := a.Admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{rule}}); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, time.Second, "a rule changed on A is used by B", func() bool { return resolved() == "n" })

	if _, err := a.Admin.RevokeAPIKey(t.Context(), &ktmsv1.RevokeAPIKeyRequest{Name: "client"}); err != nil {
		t.Fatal(err)
	}
	onA := ktmsv1connect.NewGatewayServiceClient(a.Client(t, key))
	if _, err := onA.GenerateText(t.Context(), lowRequest); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("A must refuse the key at once, got %v", err)
	}
	storetest.Eventually(t, time.Second, "B refuses the revoked key", func() bool { return resolved() == "error: unauthenticated" })
}
