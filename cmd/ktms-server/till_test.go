package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
)

// What a call of the money tests costs. The prompt is free and an answer is as long as max_tokens allows, so that what is
// reserved is what is spent.
const (
	answerTokens = 5_000
	usdPerMtok   = 10
	callNano     = 50_000_000 // 0.05 USD
)

// moneyModel is what all of them call.
const moneyModel = "m"

// till is a vendor that keeps books of its own: one account for each vendor key.
type till struct {
	url string
	// client is its customers' own.
	client   *http.Client
	mu       sync.Mutex
	accounts map[string]*tillAccount
}

// tillAccount is what a vendor key has asked for.
type tillAccount struct {
	mu sync.Mutex
	// open calls are not answered yet, billed ones are; peak is the most of both together.
	open, billed, peak int
	// refuse is how many calls are still to be refused, which bills nothing.
	refuse int
	// hold keeps calls until it is closed; nil keeps none. Streams say their first word before.
	hold chan struct{}
}

func newTill(t testing.TB) *till {
	transport := &http.Transport{MaxIdleConnsPerHost: parallelCalls}
	v := &till{accounts: map[string]*tillAccount{}, client: &http.Client{Transport: transport}}
	upstream := httptest.NewServer(v)
	v.url = upstream.URL
	t.Cleanup(upstream.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return v
}

// vendorKey is the vendor key of a client key.
func vendorKey(name string) string { return "sk-till-" + name }

// of is the account of a client key.
func (v *till) of(name string) *tillAccount {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := "Bearer " + vendorKey(name)
	if v.accounts[key] == nil {
		v.accounts[key] = &tillAccount{}
	}
	return v.accounts[key]
}

// peakOf is the most calls of an account that were open or billed at one time.
func (a *tillAccount) peakOf() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peak
}

func (a *tillAccount) openNow() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// holdsFromNow keeps calls from now on, until the result is called.
func (a *tillAccount) holdsFromNow() (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := make(chan struct{})
	a.hold = held
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.hold = nil
		close(held)
	})
}

// begin opens a call, or refuses it.
func (a *tillAccount) begin() (hold <-chan struct{}, taken bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
	a.peak = max(a.peak, a.open+a.billed)
	if a.refuse > 0 {
		a.refuse--
		return nil, false
	}
	return a.hold, true
}

func (a *tillAccount) end(billed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	if billed {
		a.billed++
	}
}

const (
	tillUsage  = `{"prompt_tokens":6,"completion_tokens":5000,"total_tokens":5006}`
	tillWord   = `{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"fine"},"finish_reason":null}]}`
	tillAnswer = `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":` + tillUsage + `}`
	tillEnd    = `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
)

func (v *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	v.mu.Lock()
	a := v.accounts[r.Header.Get("Authorization")]
	v.mu.Unlock()
	if err != nil || a == nil {
		http.Error(w, "no such account", http.StatusTeapot)
		return
	}
	hold, taken := a.begin()
	if !taken {
		a.end(false)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"not today","type":"invalid_request_error"}}`)
		return
	}
	stream := strings.Contains(string(body), `"stream":true`)
	send := func(data ...string) {
		for _, d := range data {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", d)
		}
		_ = http.NewResponseController(w).Flush()
	}
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		send(tillWord)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			a.end(false)
			return
		}
	}
	a.end(true)
	if stream {
		send(tillEnd, `{"id":"x","choices":[],"usage":`+tillUsage+`}`, "[DONE]")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, tillAnswer)
}

// sell puts the model into the catalogue of a server.
func (v *till) sell(t testing.TB, s *servertest.Instance) {
	t.Helper()
	m := servertest.Model(moneyModel, v.url)
	m.PriceOutPerMtok = usdPerMtok
	must(t)(s.Admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: m}))
	rule := &ktmsv1.RuleSpec{Name: "all", Priority: 1, Enabled: true, Use: []string{moneyModel}}
	must(t)(s.Admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{rule}}))
}

// customer mints a client key with an account at the vendor, and a cap on its day.
func (v *till) customer(t testing.TB, s *servertest.Instance, name string, nano int64) (key string) {
	t.Helper()
	v.of(name)
	minted, err := s.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: name, Scopes: []string{"generate"}})
	if err != nil {
		t.Fatal(err)
	}
	must(t)(s.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: name, Vendor: "openai", PlainKey: vendorKey(name)}))
	must(t)(s.Admin.SetSpendLimit(t.Context(), &ktmsv1.SetSpendLimitRequest{SpendLimit: &ktmsv1.SpendLimit{
		SubjectType: "key", SubjectId: name, Period: "day", LimitNanousd: nano}}))
	return minted.GetPlainKey()
}

// must ends the test when a change is refused.
func must(t testing.TB) func(any, error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// answered is how a call ended.
type answered struct {
	status int
	// whole: the answer came to its end.
	whole bool
	cost  int64
	text  string
	err   error
}

func (a answered) served() bool { return a.status == http.StatusOK && a.whole }

// buy makes one call over HTTP.
func (v *till) buy(ctx context.Context, s *servertest.Instance, key string, stream bool) (out answered) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"go on"}]`, moneyModel, answerTokens)
	if stream {
		body += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.HTTP+"/v1/chat/completions", strings.NewReader(body+"}"))
	if err != nil {
		return answered{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.client.Do(req)
	if err != nil {
		return answered{err: err}
	}
	defer resp.Body.Close()
	out.status = resp.StatusCode
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := strings.TrimPrefix(lines.Text(), "data: ")
		var wire struct {
			Usage *struct {
				Cost int64 `json:"cost_nanousd"`
			}
		}
		if json.Unmarshal([]byte(line), &wire) == nil && wire.Usage != nil {
			out.cost = wire.Usage.Cost
		}
		out.whole = !stream || line == "[DONE]" || out.whole
		out.text += line + "\n"
	}
	out.err = lines.Err()
	return out
}

// spend is what GetSpend says of a key's day.
func spend(ctx context.Context, s *servertest.Instance, name string) (*ktmsv1.SpendWindow, error) {
	r, err := s.Admin.GetSpend(ctx, &ktmsv1.GetSpendRequest{SubjectType: "key", SubjectId: name})
	if err != nil {
		return nil, err
	}
	for _, w := range r.GetWindows() {
		if w.GetPeriod() == "day" {
			return w, nil
		}
	}
	return nil, fmt.Errorf("%s has no day in %v", name, r)
}
