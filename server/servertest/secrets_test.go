package servertest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
)

// betrayals are what goes wrong at a vendor, with the credential in every answer that it gives.
func betrayals(t *testing.T) map[string]string {
	const said = `invalid key ` + servertest.VendorKey + ` or AKIACANARYQRSTUVWXYZ`
	quoted, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request went out over TLS that is not trusted") }))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	return map[string]string{
		"no such host":  "http://host.invalid",
		"no connection": "http://127.0.0.1:1",
		"no trust":      untrusted.URL,
		"401":           serve(says(401, fmt.Sprintf(`{"error":{"message":%s,"type":"x","code":401,"status":"UNAUTHENTICATED"},"message":%s,"type":"error"}`, quoted, quoted))),
		"400":           serve(says(400, fmt.Sprintf(`{"error":{"message":%s,"type":"invalid_request_error","param":%s,"status":"INVALID_ARGUMENT"},"message":%s}`, quoted, quoted, quoted))),
		"500 as text":   serve(says(500, said)),
		"429 as HTML":   serve(says(429, "<html><title>"+said+"</title></html>")),
		"200 garbled":   serve(says(200, `{"choices":[{"message":`+said)),
		"200 an error":  serve(says(200, fmt.Sprintf(`{"error":{"message":%s},"message":%s,"type":"error"}`, quoted, quoted))),
		"a redirect":    serve(says(302, said, "Location", "http://127.0.0.1:1/?key="+servertest.VendorKey)),
		"a reset":       serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"an event": serve(says(200, fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":%s,\"type\":\"api_error\"}}\n\n", quoted),
			"Content-Type", "text/event-stream")),
	}
}

// No vendor credential shows in an answer, a header, a log line or a metric, whatever a vendor does with it.
func TestACredentialShowsNowhere(t *testing.T) {
	t.Parallel()
	for what, endpoint := range betrayals(t) {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // most of the time goes into the waits between attempts
			showsNoCredential(t, what, endpoint)
		})
	}
}

func showsNoCredential(t *testing.T, what, endpoint string) {
	written := &safeBuffer{}
	options := servertest.Defaults(t)
	options.Log = slog.New(slog.NewJSONHandler(written, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := servertest.Start(t, options)
	var models []*ktmsv1.ModelSpec
	for _, who := range talkers() {
		if !slices.Contains([]string{vendors.OpenAI, vendors.Anthropic, vendors.Google, vendors.Bedrock}, who.vendor) {
			continue // of the same dialect as the first
		}
		models = append(models, &ktmsv1.ModelSpec{Id: who.model, Vendor: who.vendor, Endpoint: endpoint, Enabled: true, Capabilities: []string{"embedding"}})
	}
	key := s.Configure(t, servertest.Setup{Models: models})
	rpc := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key))
	var seen strings.Builder
	for _, m := range models {
		for _, body := range []string{
			fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}]}`, m.GetId()),
			fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"x"}]}`, m.GetId()),
		} {
			code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, body)
			if code == 200 && !strings.Contains(text, "error") {
				t.Errorf("%s, %s: passed for an answer: %s", what, m.GetVendor(), text)
			}
			fmt.Fprintln(&seen, header, text)
		}
		_, header, text := request(t, http.MethodPost, s.HTTP+"/v1/embeddings", key, fmt.Sprintf(`{"model":%q,"input":"x"}`, m.GetId()))
		fmt.Fprintln(&seen, header, text)
		_, err := rpc.GenerateText(t.Context(), &ktmsv1.GenerateTextRequest{ModelOverride: m.GetId(), Messages: lowRequest.GetMessages()})
		fmt.Fprintf(&seen, "%v %+v\n", err, err)
	}
	metrics, err := testutil.GatherAndLint(s.Metrics.Registry)
	if err != nil {
		t.Error(err)
	}
	fmt.Fprintln(&seen, metrics)
	gathered, err := s.Metrics.Registry.Gather()
	if err != nil {
		t.Error(err)
	}
	fmt.Fprintln(&seen, gathered)
	for sink, text := range map[string]string{"what callers see, or metrics": seen.String(), "the log": written.String()} {
		for _, canary := range []string{servertest.VendorKey, "canary-01", "89abcdef", "AKIACANARY"} {
			if i := strings.Index(text, canary); i >= 0 {
				t.Errorf("%s: %s show %s: …%s…", what, sink, canary, text[max(0, i-300):min(len(text), i+40)])
			}
		}
	}
}
