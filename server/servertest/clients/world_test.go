package clients

import (
	"net/http/httptest"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
)

// attemptsPerCall is what one call costs a vendor that is down: README's "retried once in place".
const attemptsPerCall = 2

// unreachable is a model at an address where nobody listens.
const unreachable = "unreachable"

// dear is the one model that has a price.
const dear = "dear"

// world is a server with the scripted vendor behind it.
type world struct {
	*servertest.Instance
	vendor   *vendor
	upstream string
	key      string
	// reader is a key without the scope generate.
	reader string
	// broke is a key that has spent its money.
	broke string
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{vendor: &vendor{calls: map[string]int{}}}
	upstream := httptest.NewServer(w.vendor)
	t.Cleanup(upstream.Close)
	w.upstream = upstream.URL
	options := servertest.Defaults(t)
	options.Breaker = dispatch.HealthOptions{} // an open circuit would hide from the vendor how often it is asked
	w.Instance = servertest.Start(t, options)
	embedder := servertest.Model(vectors, upstream.URL)
	embedder.Capabilities = []string{"embedding"}
	priced := servertest.Model(dear, upstream.URL)
	priced.PriceInPerMtok, priced.PriceOutPerMtok = 1, 1
	w.key = w.Configure(t, servertest.Setup{
		Models: []*ktmsv1.ModelSpec{
			priced,
			servertest.Model(good, upstream.URL), servertest.Model(down, upstream.URL), servertest.Model(dies, upstream.URL),
			servertest.Model(unreachable, "http://127.0.0.1:1"), embedder,
		},
		Rules: []*ktmsv1.RuleSpec{{Name: "all", Priority: 1, Use: []string{good}, Enabled: true}},
	})
	minted, err := w.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "reader", Scopes: []string{"admin:read"}})
	if err != nil {
		t.Fatal(err)
	}
	w.reader = minted.GetPlainKey()
	minted, err = w.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "broke", Scopes: []string{"generate"}})
	if err != nil {
		t.Fatal(err)
	}
	w.broke = minted.GetPlainKey()
	if _, err := w.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: "broke", Vendor: vendors.OpenAI, PlainKey: servertest.VendorKey}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Admin.SetSpendLimit(t.Context(), &ktmsv1.SetSpendLimitRequest{SpendLimit: &ktmsv1.SpendLimit{
		SubjectType: "key", SubjectId: "broke", Period: "month", LimitNanousd: 1}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// refusal is an error that every client must report as what it is.
type refusal struct {
	name, key, model string
	status           int
	code             string
}

func (w *world) refusals() []refusal {
	return []refusal{
		{"a wrong key", "ktms_wrong", "auto", 401, "invalid_api_key"},
		{"a key without the scope", w.reader, "auto", 403, "insufficient_scope"},
		{"an unknown model", w.key, "nope", 404, "model_not_found"},
		{"a bad request", w.key, "auto:nonsense", 400, "bad_request"},
		{"a vendor that is down", w.key, down, 503, "vendors_unavailable"},
		{"a vendor that is not there", w.key, unreachable, 503, "vendors_unavailable"},
		{"a key without money", w.broke, dear, 429, "insufficient_quota"},
	}
}
