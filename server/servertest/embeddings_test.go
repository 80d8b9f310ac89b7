package servertest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
)

// reversed is an answer whose vectors stand in reverse.
const reversed = `{"object":"list","data":[{"object":"embedding","index":1,"embedding":[0.25,-1]},{"object":"embedding","index":0,"embedding":[0.1,1e-7]}],"model":"v","usage":{"prompt_tokens":5,"total_tokens":5}}`

func embedder(endpoint string) *ktmsv1.ModelSpec {
	m := servertest.Model("embed-1", endpoint)
	m.Capabilities = []string{"embedding"}
	m.PriceInPerMtok = 0.02
	return m
}

func TestEmbeddingsThroughEveryDoor(t *testing.T) {
	vendor, base := record(t, says(200, reversed))
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{embedder(base)}})
	for body, want := range map[string]string{
		`"input":["a","b"]`:                              `[{"object":"embedding","index":0,"embedding":[0.1,1e-07]},{"object":"embedding","index":1,"embedding":[0.25,-1]}]`,
		`"input":["a","b"],"encoding_format":"float"`:    `[{"object":"embedding","index":0,"embedding":[0.1,1e-07]},{"object":"embedding","index":1,"embedding":[0.25,-1]}]`,
		`"input":[[1,2],[3]],"encoding_format":"base64"`: `[{"object":"embedding","index":0,"embedding":"zczMPZW/1jM="},{"object":"embedding","index":1,"embedding":"AACAPgAAgL8="}]`,
	} {
		code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/embeddings", key, `{"model":"embed-1",`+body+`}`)
		if code != 200 || text != `{"object":"list","data":`+want+`,"model":"embed-1","usage":{"prompt_tokens":5,"total_tokens":5,"cost_nanousd":100}}` || header.Get("X-KTMS-Vendor") != "openai" {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/embeddings", key, `{"model":"embed-1","input":["a","b"],"dimensions":2,"user":"u","input_type":"query"}`)
	if last := vendor.bodies[len(vendor.bodies)-1]; code != 200 || header.Get("X-KTMS-Dropped-Params") != "" || !strings.Contains(last, `"dimensions":2`) || !strings.Contains(last, `"input_type":"query"`) {
		t.Errorf("%d %s %v", code, text, last)
	}
	for name, protocol := range map[string][]connecthttp.Option{"grpc": {connecthttp.WithGRPC()}, "grpc-web": {connecthttp.WithGRPCWeb()}, "connect": nil} {
		client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, protocol...))
		r, err := client.GetEmbeddings(t.Context(), &ktmsv1.GetEmbeddingsRequest{Model: "embed-1", Inputs: []string{"a", "b"}})
		if err != nil || !reflect.DeepEqual(r.GetEmbeddings()[0].GetVector(), []float32{0.1, 1e-7}) || !reflect.DeepEqual(r.GetEmbeddings()[1].GetVector(), []float32{0.25, -1}) ||
			r.GetUsage().GetCostNanousd() != 100 || r.GetResolvedModel() != "embed-1" || r.GetRequestId() == "" {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
}

// Vectors of two models have nothing to do with each other: there is no way from one to the other.
func TestEmbeddingsStayWithTheirModel(t *testing.T) {
	down, baseDown := record(t, says(503, `{"error":{"message":"down"}}`))
	up, baseUp := record(t, says(200, reversed))
	s := servertest.Start(t, servertest.Defaults(t))
	first, second, chat := embedder(baseDown), embedder(baseUp), servertest.Model("chat", baseUp)
	second.Id = "embed-2"
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{first, second, chat}})
	for name, c := range map[string]struct {
		body, reason string
		code         int
	}{
		"a failing vendor":          {`{"model":"embed-1","input":"x"}`, "vendors_unavailable", 503},
		"the rules choose":          {`{"model":"auto","input":"x"}`, "bad_request", 400},
		"pinned rules":              {`{"model":"auto:low","input":"x"}`, "bad_request", 400},
		"no model":                  {`{"input":"x"}`, "bad_request", 400},
		"a model without embedding": {`{"model":"chat","input":"x"}`, "no_capable_model", 400},
		"an unknown model":          {`{"model":"nobody","input":"x"}`, "model_not_found", 404},
		"no input":                  {`{"model":"embed-2"}`, "bad_request", 400},
		"an empty list":             {`{"model":"embed-2","input":[]}`, "bad_request", 400},
		"an empty text":             {`{"model":"embed-2","input":["a",""]}`, "bad_request", 400},
		"mixed inputs":              {`{"model":"embed-2","input":["a",1]}`, "bad_request", 400},
		"a wrong format":            {`{"model":"embed-2","input":"x","encoding_format":"int8"}`, "bad_request", 400},
		"a wrong dimension":         {`{"model":"embed-2","input":"x","dimensions":0}`, "bad_request", 400},
		"not JSON":                  {`{"model":`, "bad_request", 400},
		"a null":                    {`{"model":"embed-2","input":[null]}`, "bad_request", 400},
		"a null among tokens":       {`{"model":"embed-2","input":[[1,null]]}`, "bad_request", 400},
		"another place":             {`{"model":"embed-2","input":"x","placement":"nodes_only"}`, "no_capable_model", 400},
		"no place":                  {`{"model":"embed-2","input":"x","placement":"mars"}`, "bad_request", 400},
		"one vector for two":        {`{"model":"embed-2","input":["a","b","c"]}`, "vendors_unavailable", 503},
	} {
		code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/embeddings", key, c.body)
		if code != c.code || !strings.Contains(text, `"code":"`+c.reason+`"`) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if down.count() != 2 { // tried, and once more
		t.Errorf("the failing vendor was called %d times", down.count())
	}
	if up.count() != 2 {
		t.Errorf("the other one was called %d times", up.count())
	}
	code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/embeddings", key, `{"model":"embed-2","input":"x"}`, "X-KTMS-Placement", "nodes_only")
	if code != 400 || !strings.Contains(text, "no_capable_model") {
		t.Errorf("placement: %d %s", code, text)
	}
	client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key))
	for _, req := range []*ktmsv1.GetEmbeddingsRequest{
		{Model: "embed-2"}, {Inputs: []string{"x"}},
		{Model: "embed-2", Inputs: []string{"x"}, TokenInputs: []*ktmsv1.TokenInput{{Tokens: []int32{1}}}},
		{Model: "embed-2", Inputs: []string{"x"}, Attributes: map[string]string{"org_id": "o"}},
	} {
		_, err := client.GetEmbeddings(context.Background(), req)
		wantCode(t, req.String(), err, connect.CodeInvalidArgument)
	}
}

func TestStrangersGetNoEmbeddings(t *testing.T) {
	_, base := record(t, says(200, reversed))
	s := servertest.Start(t, servertest.Defaults(t))
	s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{embedder(base)}})
	reader, err := s.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "reader", Scopes: []string{"admin:read"}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"": 401, "ktms_wrong": 401, reader.GetPlainKey(): 403} {
		for path, method := range map[string]string{"/v1/embeddings": http.MethodPost, "/v1/capabilities": http.MethodGet} {
			if code, _, text := request(t, method, s.HTTP+path, key, `{"model":"embed-1","input":"x"}`); code != want {
				t.Errorf("%s %s: %d %s", path, key, code, text)
			}
		}
		_, err := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key)).GetEmbeddings(t.Context(), &ktmsv1.GetEmbeddingsRequest{Model: "embed-1", Inputs: []string{"x"}})
		if code := connect.CodeOf(err); code != map[int]connect.Code{401: connect.CodeUnauthenticated, 403: connect.CodePermissionDenied}[want] {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestCapabilitiesSayBeforehandWhatBecomesOfAField(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{
		servertest.Model("gpt", "http://127.0.0.1:1"), {Id: "claude-opus-5-5", Vendor: vendors.Anthropic, Enabled: true}, {Id: "claude-haiku-4-5", Vendor: vendors.Anthropic, Enabled: true},
	}})
	code, _, text := request(t, http.MethodGet, s.HTTP+"/v1/capabilities", key, "")
	var list struct {
		Data []struct {
			ID     string
			Fields []struct{ Field, Param, Support string }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != 200 || len(list.Data) != 3 {
		t.Fatalf("%d %v %.300s", code, err, text)
	}
	got := map[string]string{}
	for _, m := range list.Data {
		if len(m.Fields) != len(vendors.Fields()) {
			t.Errorf("%s: %d fields", m.ID, len(m.Fields))
		}
		for _, f := range m.Fields {
			got[m.ID+" "+f.Field] = f.Support
		}
	}
	for what, want := range map[string]string{
		"gpt temperature": "native", "gpt top_k": "dropped", "claude-opus-5-5 temperature": "dropped", "claude-haiku-4-5 temperature": "translated",
		"claude-haiku-4-5 messages.parts.audio": "refused",
	} {
		if got[what] != want {
			t.Errorf("%s: %s, want %s", what, got[what], want)
		}
	}
}
