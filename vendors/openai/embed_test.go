package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

func texts(n int) []string { return slices.Repeat([]string{"x"}, n) }

// As many texts as a call may have, with the longest vectors in use, have to get through, also in digits.
func TestTheLargestAnswerIsRead(t *testing.T) {
	const inputs, dimensions = 2048, 3072
	vector := `{"embedding":[1` + strings.Repeat(",-0.01234567", dimensions-1) + `]}`
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(200, `{"data":[`+vector+strings.Repeat(","+vector, inputs-1)+`]}`))
	got, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendors.Local, Model: "m", BaseURL: up.URL},
		&ktmsv1.GetEmbeddingsRequest{Inputs: texts(inputs)})
	if err != nil || len(got.GetEmbeddings()) != inputs || len(got.GetEmbeddings()[inputs-1].GetVector()) != dimensions {
		t.Error(err)
	}
}

// Those that have base64 are asked for it: an answer is a third as long.
func TestVectorsComeInBase64(t *testing.T) {
	for vendor, want := range map[string]bool{vendors.OpenAI: true, vendors.Azure: true, vendors.Local: false, vendors.Ollama: false, vendors.Mistral: false} {
		up := vendortest.NewUpstream(t)
		up.Reply(func(x *vendortest.Exchange) {
			vendortest.Respond(200, vendortest.OpenAI().Embeddings(x.Call, [][]float32{{1, -0.5}}, 9))(x)
		})
		got, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendor, Model: "m", BaseURL: up.URL},
			&ktmsv1.GetEmbeddingsRequest{Inputs: texts(1)})
		if err != nil || got.GetEmbeddings()[0].GetVector()[1] != -0.5 {
			t.Errorf("%s: %v %v", vendor, got, err)
		}
		if packed := strings.Contains(string(up.Await(0).Body), `"encoding_format":"base64"`); packed != want {
			t.Errorf("%s: %s", vendor, up.Await(0).Body)
		}
	}
}

// A server behind the vendor's name may not know base64, and answers in digits whatever was asked for.
func TestVectorsInDigitsAlthoughBase64WasAskedFor(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(
		vendortest.Respond(200, `{"object":"list","data":[{"index":1,"embedding":[3,4]},{"index":0, "embedding" : [1,2]}],"usage":{"prompt_tokens":5}}`),
		vendortest.Respond(200, `{"data":[{"embedding":[3,4`),
	)
	to := vendors.Target{Vendor: vendors.OpenAI, Model: "m", BaseURL: up.URL}
	got, err := newVendor(t).Embed(t.Context(), to, &ktmsv1.GetEmbeddingsRequest{Inputs: texts(2)})
	if err != nil || got.GetEmbeddings()[1].GetVector()[1] != 4 || got.GetUsage().GetInput() != 5 {
		t.Errorf("%v %v", got, err)
	}
	_, err = newVendor(t).Embed(t.Context(), to, &ktmsv1.GetEmbeddingsRequest{Inputs: texts(1)})
	if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unavailable || e.Status != 200 {
		t.Errorf("%v", err)
	}
}

// An answer that is too large for us would be as large again, and is not the vendor's fault.
func TestAnAnswerThatIsTooLarge(t *testing.T) {
	if got := embedLimit(1); got < 1<<20 || got > 2<<20 {
		t.Error(got)
	}
	if got := embedLimit(1 << 20); got != maxEmbedAnswer {
		t.Error(got)
	}
	for _, vendor := range []string{vendors.OpenAI, vendors.Ollama} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(200, `{"data":[{"embedding":[1`+strings.Repeat(",0.1000000000000000000000", embedLimit(1)/20)+`]}]}`))
		_, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendor, Model: "m", BaseURL: up.URL},
			&ktmsv1.GetEmbeddingsRequest{Inputs: texts(1)})
		if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unsupported || !strings.Contains(e.Message, fmt.Sprint(embedLimit(1))) {
			t.Errorf("%s: %v", vendor, err)
		}
	}
}

func TestEmbedExtras(t *testing.T) {
	const extra = `{"user":"u","output_dtype":"float","metadata":{"k":"v"},"input_type":"query","Input":"x"}`
	for vendor, want := range map[string]struct{ kept, dropped []string }{
		vendors.OpenAI:  {[]string{"user", "output_dtype", "metadata", "input_type", "dimensions"}, []string{"Input"}},
		vendors.Local:   {[]string{"user", "output_dtype", "metadata", "input_type", "dimensions"}, []string{"Input"}},
		vendors.Mistral: {[]string{"output_dtype", "metadata", "output_dimension"}, []string{"user", "input_type", "Input"}},
	} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(200, `{"data":[{"embedding":[1]}]}`))
		got, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendor, Model: "m", BaseURL: up.URL},
			&ktmsv1.GetEmbeddingsRequest{Inputs: texts(1), Dimensions: 7, ExtraJson: extra})
		if err != nil || !slices.Equal(got.GetDroppedParams(), want.dropped) {
			t.Errorf("%s: %v, dropped %v", vendor, err, got.GetDroppedParams())
		}
		var body map[string]any
		if err := json.Unmarshal(up.Await(0).Body, &body); err != nil {
			t.Fatal(err)
		}
		delete(body, "encoding_format")
		for _, name := range append(want.kept, "model", "input") {
			if body[name] == nil {
				t.Errorf("%s: no %s in %v", vendor, name, body)
			}
			delete(body, name)
		}
		if len(body) > 0 {
			t.Errorf("%s: %v goes out, too", vendor, body)
		}
	}
}

// What the vendor says in an answer with a good status has to be heard.
func TestEmbedErrorsWithinAnAnswer(t *testing.T) {
	for body, want := range map[string]vendors.Kind{
		`{"error":{"message":"too long, sorry","code":"context_length_exceeded"}}`: vendors.Overflow,
		`{"object":"error","message":"sorry, busy","code":503}`:                    vendors.Unavailable,
		`{"data":"sorry","error":"sorry"}`:                                         vendors.Unavailable,
	} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(200, body))
		_, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendors.OpenAI, Model: "m", BaseURL: up.URL},
			&ktmsv1.GetEmbeddingsRequest{Inputs: texts(1)})
		if e, ok := err.(*vendors.Error); !ok || e.Kind != want || e.Status != 200 || !strings.Contains(e.Message, "sorry") {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"data":[]}`, `{]`} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(200, body))
		_, err := newVendor(t).Embed(t.Context(), vendors.Target{Vendor: vendors.OpenAI, Model: "m", BaseURL: up.URL},
			&ktmsv1.GetEmbeddingsRequest{Inputs: texts(1)})
		if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unavailable || strings.Contains(e.Message, "chat") {
			t.Errorf("%s: %v", body, err)
		}
	}
}
