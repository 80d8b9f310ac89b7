package vendortest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// embeddingCases: texts become vectors.
var embeddingCases = []testCase{
	{name: "vectors", needs: embeds, run: func(f *fixture) {
		want := [][]float32{{0.5, -0.25, 1e-7}, {0.125, 0, 3}, {1, 2, 3}}
		f.up.Reply(f.vectors(want, 9))
		got, err := f.embed(&ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"canary-one", "canary-two", "canary-three"}})
		if err != nil {
			f.Fatal(err)
		}
		if len(got.GetEmbeddings()) != len(want) {
			f.Fatalf("%d vectors", len(got.GetEmbeddings()))
		}
		for i, e := range got.GetEmbeddings() {
			if int(e.GetIndex()) != i || len(e.GetVector()) != 3 || e.GetVector()[0] != want[i][0] || e.GetVector()[2] != want[i][2] {
				f.Errorf("vector %d: %v", i, e)
			}
		}
		if u := got.GetUsage(); u != nil && (u.GetInput() != 9 || u.GetOutput() != 0) {
			f.Errorf("usage %v", u)
		}
		body := string(f.up.Await(0).Body)
		one, two, three := strings.Index(body, "canary-one"), strings.Index(body, "canary-two"), strings.Index(body, "canary-three")
		if one < 0 || two < one || three < two {
			f.Errorf("inputs in %s", body)
		}
		f.checkSecret(f.up.Await(0).Path + f.up.Await(0).Query)
	}},
	{name: "dimensions", needs: embeds, run: func(f *fixture) {
		f.up.Reply(f.vectors([][]float32{{1}}, 1))
		if _, err := f.embed(&ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"x"}, Dimensions: 321}); err != nil || !strings.Contains(string(f.up.Await(0).Body), "321") {
			f.Errorf("%v: %s", err, f.up.Await(0).Body)
		}
	}},
	{name: "failures", needs: embeds, run: func(f *fixture) {
		whole := f.Script.Embeddings(&Call{}, [][]float32{{1}, {2}}, 2)
		for name, c := range map[string]struct {
			reply Reply
			kind  vendors.Kind
		}{
			"too few":  {f.vectors([][]float32{{1}}, 1), vendors.Unavailable},
			"too many": {f.vectors([][]float32{{1}, {2}, {3}}, 1), vendors.Unavailable},
			"empty":    {f.answers(""), vendors.Unavailable},
			"garbled":  {f.answers(strings.Replace(whole, "{", "{]", 1)), vendors.Unavailable},
			"cut":      {f.answers(whole[:len(whole)/2]), vendors.Unavailable},
			"HTML":     {Respond(http.StatusOK, "<html>log in</html>", "Content-Type", "text/html"), vendors.Unavailable},
			"denied":   {Respond(http.StatusUnauthorized, f.Script.Failure("wrong key "+Key), "Content-Type", "application/json"), vendors.Denied},
			"busy":     {Respond(http.StatusServiceUnavailable, f.Script.Failure("busy"), "Content-Type", "application/json"), vendors.Unavailable},
			"reset":    {func(x *Exchange) { x.Reset() }, vendors.Unavailable},
		} {
			f.Run(name, func(t *testing.T) {
				f := newFixture(t, f.Subject)
				f.up.Reply(c.reply)
				_, err := f.embed(&ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"a", "b"}})
				f.wants(err, c.kind)
				if n := len(f.up.Calls()); n != 1 {
					f.Errorf("%d calls", n)
				}
			})
		}
	}},
	{name: "failures within an answer", needs: embeds, run: func(f *fixture) {
		for _, body := range f.Script.HiddenFailures {
			if !strings.Contains(body, "the engine is down") {
				continue
			}
			f.Run(body, func(t *testing.T) {
				f := newFixture(t, f.Subject)
				f.up.Reply(f.answers(body))
				_, err := f.embed(&ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"a"}})
				if e := f.wants(err, vendors.Unavailable); e.Status != http.StatusOK || !strings.Contains(e.Message, "the engine is down") {
					f.Errorf("%+v", e)
				}
			})
		}
	}},
	{name: "further members", needs: embeds, run: func(f *fixture) {
		req := &ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"a"}, ExtraJson: `{"canary_member":{"b":1,"a":12345678901234567890}}`}
		for _, own := range []string{"model", "Model", "input", "encoding_format", "dimensions"} {
			f.Run(own, func(t *testing.T) {
				f := newFixture(t, f.Subject)
				f.up.Reply(f.vectors([][]float32{{1}}, 1))
				got, err := f.embed(&ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"a"}, ExtraJson: `{"` + own + `":"canary-own"}`})
				if err != nil || !slices.Equal(got.GetDroppedParams(), []string{own}) || strings.Contains(string(f.up.Await(0).Body), "canary-own") {
					f.Errorf("%v %v: %s", err, got.GetDroppedParams(), f.up.Await(0).Body)
				}
			})
		}
		f.up.Reply(f.vectors([][]float32{{1}}, 1))
		got, err := f.embed(req)
		if err != nil {
			f.Fatal(err)
		}
		lost := slices.Equal(got.GetDroppedParams(), []string{canaryMember})
		if went := strings.Contains(string(f.up.Await(0).Body), `"canary_member":{"b":1,"a":12345678901234567890}`); went == lost {
			f.Errorf("dropped %v: %s", got.GetDroppedParams(), f.up.Await(0).Body)
		}
		req.StrictParams = true
		if _, err = f.embed(req); !lost && err != nil {
			f.Error(err)
		} else if lost && f.wants(err, vendors.Unsupported).Param != canaryMember {
			f.Error(err)
		}
		for _, wrong := range []string{`[]`, `{"a":1},"model":"x"`, `7`} {
			_, err := f.embed(&ktmsv1.GetEmbeddingsRequest{Model: "m", Inputs: []string{"a"}, ExtraJson: wrong})
			f.wants(err, vendors.Invalid)
		}
	}},
}

// vectors answers in the format that the call asks for.
func (f *fixture) vectors(list [][]float32, inputTokens int64) Reply {
	return func(x *Exchange) { f.answers(f.Script.Embeddings(x.Call, list, inputTokens))(x) }
}

func embeds(s *Script) bool { return s.Embeddings != nil }

func (f *fixture) embed(req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	f.Helper()
	e, ok := f.vendor.(vendors.Embedder)
	if !ok {
		f.Fatal("the script has embeddings, the dialect has none")
	}
	got, err := e.Embed(f.Context(), f.target, req)
	f.checkError(err)
	return got, err
}
