package gemini

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

func TestEndpoint(t *testing.T) {
	for _, c := range []struct{ base, model, want string }{
		{"", "gemini-4-argon", "https://generativelanguage.googleapis.com/v1beta/models/gemini-4-argon:m"},
		{"", "models/gemini-4-argon", "https://generativelanguage.googleapis.com/v1beta/models/gemini-4-argon:m"},
		{"", "tunedModels/x", "https://generativelanguage.googleapis.com/v1beta/tunedModels/x:m"},
		{"", "a/b:c?d", "https://generativelanguage.googleapis.com/v1beta/models/a%2Fb%3Ac%3Fd:m"},
		{"http://h.example", "x", "http://h.example/v1beta/models/x:m"},
		{"http://h.example/proxy/", "x", "http://h.example/proxy/v1beta/models/x:m"},
		{"http://h.example/proxy%2Fa/v1/", "x", "http://h.example/proxy%2Fa/v1/models/x:m"},
		{"https://h.example/v1/projects/p/locations/l/publishers/google", "x", "https://h.example/v1/projects/p/locations/l/publishers/google/models/x:m"},
		{"http://h.example/?a=b#c", "x", "http://h.example/v1beta/models/x:m?a=b"},
		{"ftp://h.example", "x", "error"}, {"h.example", "x", "error"}, {"http://h.example:port", "x", "error"},
	} {
		got, failed := endpoint(vendors.Target{Vendor: vendors.Google, Model: c.model, BaseURL: c.base}, "m", false)
		if failed != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s %s: %s %v", c.base, c.model, got, failed)
		}
	}
	if got, _ := endpoint(vendors.Target{Model: "x", BaseURL: "http://h.example?a=b"}, "m", true); got != "http://h.example/v1beta/models/x:m?a=b&alt=sse" {
		t.Error(got)
	}
}

// collect reads a stream: its text, its last finish reason and usage, and its error.
func collect(t *testing.T, up *vendortest.Upstream, req *ktmsv1.GenerateTextRequest) (text, finish string, usage *ktmsv1.TokensUsage, err error) {
	t.Helper()
	v := New(Options{Version: "test"})
	t.Cleanup(v.CloseIdleConnections)
	for event, e := range v.Stream(t.Context(), vendors.Target{Vendor: vendors.Google, Model: "m", BaseURL: up.URL}, req) {
		text += event.Chunk.GetDelta()
		finish = or(event.Chunk.GetFinishReason(), finish)
		if event.Chunk.GetUsage() != nil {
			usage = event.Chunk.GetUsage()
		}
		err = e
	}
	return text, finish, usage, err
}

// A proxy may lose the switch for events; the answer is a list then, or one object.
func TestStreamWithoutEvents(t *testing.T) {
	const one = `{"candidates": [{"content": {"parts": [{"text": "a\nb"}]}}]}`
	const two = `{"candidates": [{"content": {"parts": [{"text": "c"}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 2}}`
	pretty := func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, ", ", ",\n  "), "{", "{\n  ") }
	for name, body := range map[string]string{
		"list": "[" + one + "\n,\r\n" + two + "\n]\n", "pretty": pretty("[" + one + "\n,\r\n" + two + "\n]"), "line by line": one + "\n\n" + two,
	} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(http.StatusOK, body, "Content-Type", "application/json"))
		if text, finish, usage, err := collect(t, up, hi()); err != nil || text != "a\nbc" || finish != "stop" || usage.GetInput() != 2 {
			t.Errorf("%s: %q %q %v %v", name, text, finish, usage, err)
		}
	}
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(http.StatusOK, pretty(two), "Content-Type", "application/json"))
	if text, finish, usage, err := collect(t, up, hi()); err != nil || text != "c" || finish != "stop" || usage.GetInput() != 2 {
		t.Errorf("%q %q %v %v", text, finish, usage, err)
	}
}

func TestStreamWithAnEnd(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Events("text/event-stream", "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n", "data: [DONE]\n\n"))
	if _, finish, _, err := collect(t, up, hi()); err != nil || finish != "stop" {
		t.Errorf("%q %v", finish, err)
	}
}

func TestBlockedStream(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Events("text/event-stream", "data: {\"promptFeedback\":{\"blockReason\":\"JAILBREAK\"},\"usageMetadata\":{\"promptTokenCount\":2}}\n\n"))
	_, _, usage, err := collect(t, up, hi())
	if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Blocked || e.Status != http.StatusOK || usage.GetInput() != 2 {
		t.Errorf("%v %v", usage, err)
	}
}

func TestBareJSON(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"data: {}\n\n":                    "data: {}\n\n",
		": x\r\ndata: {\"a\":1}\r\n\r\n":  ": x\r\ndata: {\"a\":1}\r\n\r\n",
		"{\"error\":{}}":                  "data:{\"error\":{}}",
		"data: 1\n\n{\"a\":1}\ndata: 2\n": "data: 1\n\ndata:{\"a\":1}\n\ndata: 2\n",
		"{\r\n  \"a\": 1\r\n}\r\n\r\n":    "data:{\r\ndata:  \"a\": 1\r\ndata:}\r\n\r\n",
		"[{}\n,\n{}]":                     "data:[{}\ndata:,\ndata:{}]",
	} {
		for name, src := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)), "with EOF": iotest.DataErrReader(strings.NewReader(in))} {
			if got, err := io.ReadAll(&bareJSON{src: src, fresh: true}); err != nil || string(got) != want {
				t.Errorf("%q, %s: %q %v", in, name, got, err)
			}
			if err := iotest.TestReader(&bareJSON{src: strings.NewReader(in), fresh: true}, []byte(want)); err != nil {
				t.Errorf("%q: %v", in, err)
			}
		}
	}
}

func TestEmbed(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(http.StatusOK, `{"embeddings":[{"values":[3,4]},{"values":[0,0]}]}`))
	v := New(Options{})
	t.Cleanup(v.CloseIdleConnections)
	to := vendors.Target{Vendor: vendors.Google, Model: "models/gemini-embedding-001", BaseURL: up.URL}
	req := &ktmsv1.GetEmbeddingsRequest{Inputs: []string{"a", "b"}}
	plain, err := v.Embed(t.Context(), to, req)
	if err != nil || plain.GetEmbeddings()[0].GetVector()[1] != 4 || plain.GetUsage() != nil || plain.GetEmbeddings()[1].GetIndex() != 1 {
		t.Errorf("%v %v", plain, err)
	}
	req.Dimensions = 2
	short, err := v.Embed(t.Context(), to, req)
	if vector := short.GetEmbeddings()[0].GetVector(); err != nil || vector[0] != 0.6 || vector[1] != 0.8 || short.GetEmbeddings()[1].GetVector()[0] != 0 {
		t.Errorf("%v %v", short, err)
	}
	call := up.Await(1)
	if want := `{"requests":[{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"a"}]},"outputDimensionality":2},` +
		`{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"b"}]},"outputDimensionality":2}]}`; string(call.Body) != want ||
		call.Path != "/v1beta/models/gemini-embedding-001:batchEmbedContents" {
		t.Errorf("%s %s", call.Path, call.Body)
	}
	_, err = v.Embed(t.Context(), to, &ktmsv1.GetEmbeddingsRequest{TokenInputs: []*ktmsv1.TokenInput{{Tokens: []int32{1}}}})
	if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unsupported {
		t.Error(err)
	}
}

// The vendor refuses larger batches; saying so here spares a call that can only fail.
func TestEmbedTakesAHundredTexts(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(200, vendortest.Gemini().Embeddings(nil, slices.Repeat([][]float32{{1}}, maxInputs), 1)))
	v, to := New(Options{}), vendors.Target{Vendor: vendors.Google, Model: "m", BaseURL: up.URL, Key: vendors.NewSecret("k")}
	if _, err := v.Embed(t.Context(), to, &ktmsv1.GetEmbeddingsRequest{Inputs: slices.Repeat([]string{"x"}, maxInputs)}); err != nil {
		t.Error(err)
	}
	_, err := v.Embed(t.Context(), to, &ktmsv1.GetEmbeddingsRequest{Inputs: slices.Repeat([]string{"x"}, maxInputs+1)})
	if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unsupported || e.Param != "input" || !strings.Contains(e.Message, "100") {
		t.Error(err)
	}
	if n := len(up.Calls()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestEmbedExtras(t *testing.T) {
	body, dropped, failed := encodeEmbed(target("m"), &ktmsv1.GetEmbeddingsRequest{Inputs: []string{"a"},
		ExtraJson: `{"task_type":"RETRIEVAL_QUERY","title":"T","user":"u"}`})
	if failed != nil || !slices.Equal(dropped, []string{"user"}) || !strings.Contains(string(body), `"taskType":"RETRIEVAL_QUERY","title":"T"`) {
		t.Errorf("%v %v %s", failed, dropped, body)
	}
	_, _, failed = encodeEmbed(target("m"), &ktmsv1.GetEmbeddingsRequest{Inputs: []string{"a"}, ExtraJson: `{"user":"u"}`, StrictParams: true})
	if failed == nil || failed.Kind != vendors.Unsupported || failed.Param != "user" {
		t.Error(failed)
	}
}
