package servertest_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// The same call costs the same wherever it is answered, whether the vendor counts cached tokens within its input (as
// OpenAI, Google) or beside it (as Anthropic, Bedrock): 1,000 tokens of input, 600 of them read from the cache, 70 of
// output, at prices of their own. Worked out by hand: 400 × 2 + 600 × 0.20 + 70 × 10 dollars per million.
func TestCostIsExactWithEveryVendor(t *testing.T) {
	const want = 400*2000 + 600*200 + 70*10_000 // nano-USD
	for _, who := range talkers() {
		for _, stream := range []bool{false, true} {
			usage := &ktmsv1.TokensUsage{Input: 1000, CacheRead: 600, Output: 70}
			got := costOf(t, who, stream, usage)
			if got.Cost != want || got.Prompt != 1000 || got.Completion != 70 || got.Details.Cached != 600 || got.Estimated {
				t.Errorf("%s, stream %v: %+v, want %d nano-USD", who.vendor, stream, got, want)
			}
		}
	}
	// Written to the cache, too: 5 minutes at 1.25 × and 1 hour at 2 × the input price, where the vendor tells them apart.
	for _, who := range talkers() {
		if !who.script.CacheWrites1H {
			continue
		}
		usage := &ktmsv1.TokensUsage{Input: 1000, CacheRead: 600, CacheWrite: 200, CacheWrite_1H: 100, Output: 70}
		const want = 100*2000 + 600*200 + 200*2500 + 100*4000 + 70*10_000
		if got := costOf(t, who, false, usage); got.Cost != want {
			t.Errorf("%s with writes: %+v, want %d nano-USD", who.vendor, got, want)
		}
	}
}

type pricedUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Cost       int64 `json:"cost_nanousd"`
	Estimated  bool
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func costOf(t *testing.T, who talker, stream bool, usage *ktmsv1.TokensUsage) pricedUsage {
	t.Helper()
	up := vendortest.NewUpstream(t)
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{{
		Id: who.model, Vendor: who.vendor, Endpoint: up.URL, Enabled: true, PriceInPerMtok: 2, PriceOutPerMtok: 10, PriceCacheReadPerMtok: 0.20}}})
	answer := vendortest.Answer{ID: "a", Model: "m", Text: []string{"four ", "words are here"}, FinishReason: "stop", Usage: usage}
	if stream {
		up.Reply(vendortest.Events(who.script.StreamType, who.script.Stream(answer).All()...))
	} else {
		up.Reply(vendortest.Respond(http.StatusOK, who.script.Body(answer), "Content-Type", who.script.UnaryType))
	}
	code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key,
		fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"How many words?"}],"stream":%v,"stream_options":{"include_usage":true}}`, who.model, stream))
	if code != 200 {
		t.Fatalf("%s: %d %s", who.vendor, code, text)
	}
	var found *pricedUsage
	for line := range strings.Lines(text) {
		var r struct{ Usage *pricedUsage }
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &r) == nil && r.Usage != nil {
			found = r.Usage
		}
	}
	if found == nil {
		t.Fatalf("%s: no usage in %s", who.vendor, text)
	}
	return *found
}

// A vendor that does not count is estimated, and the estimate says that it is one.
func TestMissingUsageIsEstimatedAndSaysSo(t *testing.T) {
	for _, who := range talkers() {
		for _, stream := range []bool{false, true} {
			got := costOf(t, who, stream, nil)
			if !got.Estimated || got.Prompt < 4 || got.Prompt > 20 || got.Completion < 3 || got.Completion > 8 || got.Cost != got.Prompt*2000+got.Completion*10_000 {
				t.Errorf("%s, stream %v: %+v", who.vendor, stream, got)
			}
		}
	}
}

// A caller that leaves a stream has to be charged for what was generated until then, no more and no less: the vendor
// sends no usage any more.
func TestAnAbandonedStreamIsAccountedFor(t *testing.T) {
	written := &safeBuffer{}
	options := servertest.Defaults(t)
	options.Log = slog.New(slog.NewJSONHandler(written, nil))
	s := servertest.Start(t, options)
	m := servertest.Model("m", (&endless{}).serve(t))
	m.PriceInPerMtok, m.PriceOutPerMtok = 2, 10
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{m}})
	openAIStream(t, http.DefaultClient, s.HTTP, key)
	storetest.Eventually(t, 10*time.Second, "the call is in the log", func() bool { return strings.Contains(written.String(), `"msg":"call"`) })
	var line struct {
		Input     int64 `json:"input_tokens"`
		Output    int64 `json:"output_tokens"`
		Cost      int64 `json:"cost_nanousd"`
		Estimated bool
		Reason    string
	}
	for text := range strings.Lines(written.String()) {
		if strings.Contains(text, `"msg":"call"`) {
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Three tokens were read; a few more were on their way.
	if !line.Estimated || line.Reason != "canceled" || line.Input < 2 || line.Output < 3 || line.Output > 300 || line.Cost != line.Input*2000+line.Output*10_000 {
		t.Errorf("%+v", line)
	}
}

// A tier with a price that the catalogue does not know is left out and said, so that the cost stays true.
func TestATierWithoutAPriceIsLeftOut(t *testing.T) {
	vendor, base := record(t, says(200, okAnswer))
	s := servertest.Start(t, servertest.Defaults(t))
	priced, free := servertest.Model("priced", base), servertest.Model("free", base)
	priced.PriceInPerMtok = 1
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{priced, free}})
	call := func(model, tier string, headers ...string) (int, string, bool) {
		before := vendor.count()
		code, header, _ := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key,
			fmt.Sprintf(`{"model":%q,"service_tier":%q,"messages":[{"role":"user","content":"x"}]}`, model, tier), headers...)
		sent := vendor.count() > before && strings.Contains(vendor.bodies[before], tier)
		return code, header.Get("X-KTMS-Dropped-Params"), sent
	}
	for _, c := range []struct {
		model, tier string
		strict      bool
		code        int
		dropped     string
		sent        bool
	}{
		{"priced", "priority", false, 200, "service_tier", false}, {"priced", "flex", false, 200, "service_tier", false},
		{"priced", "default", false, 200, "", true}, {"free", "priority", false, 200, "", true}, {"priced", "priority", true, 400, "", false},
	} {
		var headers []string
		if c.strict {
			headers = []string{"X-KTMS-Strict", "true"}
		}
		if code, dropped, sent := call(c.model, c.tier, headers...); code != c.code || dropped != c.dropped || sent != c.sent {
			t.Errorf("%+v: %d, dropped %q, sent %v", c, code, dropped, sent)
		}
	}
}

// Vendors bill every attempt, so the log counts every one.
func TestEveryAttemptCounts(t *testing.T) {
	written := &safeBuffer{}
	options := servertest.Defaults(t)
	options.Log = slog.New(slog.NewJSONHandler(written, nil))
	s := servertest.Start(t, options)
	_, base := record(t, content("no JSON"), content("{}"))
	m := servertest.Model("m", base)
	m.Vendor, m.PriceInPerMtok, m.PriceOutPerMtok = vendors.DeepSeek, 1, 1
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{m}})
	code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"m","response_format":{"type":"json_object"},"messages":[{"role":"user","content":"x"}]}`)
	if code != 200 || !strings.Contains(text, `"prompt_tokens":10`) {
		t.Errorf("%d %s", code, text)
	}
	if !strings.Contains(written.String(), `"input_tokens":20,"output_tokens":4,"cost_nanousd":24000`) {
		t.Errorf("%s", written)
	}
}

// A zero is no count.
func TestUsageOfNothingIsEstimated(t *testing.T) {
	for _, usage := range []string{`{}`, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, `{"prompt_tokens":5,"completion_tokens":0}`} {
		_, base := record(t, says(200, `{"choices":[{"index":0,"message":{"role":"assistant","content":"some words of an answer"},"finish_reason":"stop"}],"usage":`+usage+`}`))
		s := servertest.Start(t, servertest.Defaults(t))
		key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base)}})
		_, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"m","messages":[{"role":"user","content":"some words of a question"}]}`)
		var r struct{ Usage pricedUsage }
		if err := json.Unmarshal([]byte(text), &r); err != nil || !r.Usage.Estimated || r.Usage.Prompt == 0 || r.Usage.Completion == 0 {
			t.Errorf("%s: %s", usage, text)
		}
	}
}

// A prompt that no model of the chain can take is the caller's to change, not a failure to retry.
func TestMistakesOfSeveralKindsAreTheCallers(t *testing.T) {
	_, base := record(t, says(400, `{"error":{"message":"too long","code":"context_length_exceeded"}}`))
	s := servertest.Start(t, servertest.Defaults(t))
	claude := &ktmsv1.ModelSpec{Id: "claude-opus-5-5", Vendor: vendors.Anthropic, Enabled: true, Endpoint: base, Capabilities: []string{"audio_input"}}
	gpt := servertest.Model("gpt", base)
	gpt.Capabilities = []string{"audio_input"}
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{claude, gpt}})
	code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key,
		`{"model":"auto","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AQI=","format":"wav"}}]}]}`)
	if code != 400 || !strings.Contains(text, "claude-opus-5-5") || !strings.Contains(text, "gpt") {
		t.Errorf("%d %s", code, text)
	}
}
