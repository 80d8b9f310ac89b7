package nodes_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/nodes"
)

// slow is a pool that takes a slot before its answer is on the way.
type slow struct {
	pool.Nodes
	taken, answer chan struct{}
}

func (s slow) Choose(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
	got, err := s.Nodes.Choose(context.WithoutCancel(ctx), c)
	close(s.taken)
	select {
	case <-ctx.Done(): // the answer is lost
		return pool.Chosen{}, ctx.Err()
	case <-s.answer:
		return got, err
	}
}

// TestACallerThatLeavesWhileItsSlotIsTaken leaves no slot behind that nobody gives back, and nothing is sent for it.
func TestACallerThatLeavesWhileItsSlotIsTaken(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, streamed bool) {
		late := slow{taken: make(chan struct{}), answer: make(chan struct{})}
		w := newWorld(t, func(o *nodes.Options) {
			late.Nodes, o.Lease = o.Nodes, time.Hour
			o.Nodes = late
		})
		w.node("n", func(http.ResponseWriter, *http.Request) { t.Error("a machine was called") }, nil)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan *vendors.Error, 1)
		go func() { ended <- w.call(ctx, target(nil), streamed) }()
		<-late.taken
		leave()
		close(late.answer)
		if failed := <-ended; failed == nil || failed.Kind != vendors.Canceled || !failed.Unsent {
			t.Errorf("ended in %+v", failed)
		}
		w.free("n")
	})
}

// TestALongLineElsewhere: what waits in one machine's engine, or is said to, does not send away who waits for another one.
func TestALongLineElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began, end := make(chan struct{}, 1), make(chan struct{})
	w.node("good", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(rw, whole)
	}, nil)
	call := func() <-chan *vendors.Error {
		ended := make(chan *vendors.Error, 1)
		go func() {
			ended <- w.call(t.Context(), target(func(v *vendors.Visit) { v.Patience = patience }), false)
		}()
		return ended
	}
	first := call() // from here on it is known how long a request takes
	<-began
	time.Sleep(10 * time.Millisecond)
	end <- struct{}{}
	if failed := <-first; failed != nil {
		t.Fatal(failed)
	}
	w.free("good")
	first = call()
	<-began
	w.node("long", answers, func(_ *pool.NodeSpec, report *pool.NodeReport) {
		report.Active, report.Waiting = new(int64(1)), new(int64(1<<31-1))
	})
	second := call()
	select {
	case failed := <-second:
		close(end)
		t.Fatalf("who waits was sent away: %v", failed)
	case <-time.After(100 * time.Millisecond):
	}
	end <- struct{}{}
	<-began
	end <- struct{}{}
	for _, ended := range []<-chan *vendors.Error{first, second} {
		if failed := <-ended; failed != nil {
			t.Error(failed)
		}
	}
}

// TestTooLongForWhoIsLeft: a machine that would take the prompt, and is away for a moment, is no reason to ask for a shorter
// one.
func TestTooLongForWhoIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		large func(*pool.NodeSpec, *pool.NodeReport)
		tried []string
		kind  vendors.Kind
	}{
		"has failed it":  {nil, []string{"large"}, vendors.Busy},
		"drains":         {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Draining = true }, nil, vendors.Busy},
		"knows no bound": {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Level, r.Models[0].Context = 0, 0 }, nil, vendors.Busy},
		"drains, and is too short": {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Draining, r.Models[0].Context = true, 1500 },
			nil, vendors.Overflow},
		"may not serve it": {func(s *pool.NodeSpec, _ *pool.NodeReport) { s.AllowedModels = []string{"other"} }, nil, vendors.Overflow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.node("small", answers, nil)
			w.node("large", answers, func(spec *pool.NodeSpec, report *pool.NodeReport) {
				report.Models[0].Context = 100_000
				if test.large != nil {
					test.large(spec, report)
				}
			})
			failed := w.call(t.Context(), target(func(v *vendors.Visit) { v.PromptTokens, v.Tried = 2000, test.tried }), true)
			if failed == nil || failed.Kind != test.kind || !failed.Unsent {
				t.Errorf("ended in %+v, want %v", failed, test.kind)
			}
		})
	}
}

// TestARequestThatNoEngineSurvives does not take out all machines: where several have failed on it, it may be the request.
func TestARequestThatNoEngineSurvives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.node("n", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) }, nil)
	failures := func() int64 {
		w.free("n")
		loads, err := w.machines.Loads(t.Context(), "m", []string{"n"})
		if err != nil {
			t.Fatal(err)
		}
		return loads[0].Failures
	}
	for range pool.BreakAfter {
		if failed := w.call(t.Context(), target(func(v *vendors.Visit) { v.Tried = []string{"other"} }), false); failed == nil || failed.Node != "n" {
			t.Fatalf("ended in %+v", failed)
		}
		w.free("n")
	}
	if n := failures(); n != 0 {
		t.Errorf("%d failures are counted of requests that failed elsewhere, too", n)
	}
	_ = w.call(t.Context(), target(nil), false)
	if n := failures(); n != 1 {
		t.Errorf("%d failures are counted of the first machine", n)
	}
}

// TestWhatWasNotSentCuresNobody: a request that the dialect cannot carry says nothing about a machine that is on trial.
func TestWhatWasNotSentCuresNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.node("n", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) }, nil)
	_ = w.call(t.Context(), target(nil), false)
	w.free("n")
	for _, change := range []func(*ktmsv1.GenerateTextRequest){
		func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].Parts = []*ktmsv1.ContentPart{{}} },
		func(r *ktmsv1.GenerateTextRequest) { r.StrictParams, r.EnableGoogleSearch = true, true },
	} {
		req := hello()
		change(req)
		_, err := w.vendor.Generate(t.Context(), target(nil), req)
		failed, _ := errors.AsType[*vendors.Error](err)
		if failed == nil || failed.Kind != vendors.Unsupported && failed.Kind != vendors.Invalid || failed.Node != "" {
			t.Fatalf("ended in %v", err)
		}
		w.free("n")
		if loads, _ := w.machines.Loads(t.Context(), "m", []string{"n"}); loads[0].Failures != 1 {
			t.Errorf("%d failures are counted, want the 1 of the call that was made", loads[0].Failures)
		}
	}
}

// TestWhereAMachineIsStaysHidden: it and the proxies before it name their addresses when they fail.
func TestWhereAMachineIsStaysHidden(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code       int
		body, says string
	}{
		"a tunnel's page": {530, `<html><title>random-words.trycloudflare.com | 530: The origin is gone</title></html>`, "530: The origin is gone"},
		"a proxy":         {502, `{"error":{"message":"dial tcp 10.10.0.15:8000: connection refused by gpu-7.corp.internal (rack-7)"}}`, "connection refused"},
		"IPv6":            {502, `{"error":{"message":"dial tcp [fd00:10::7]:8000 via fd00:10::7: connection refused at 12:00"}}`, "connection refused"},
		"a URL":           {401, `{"error":{"message":"ask at http://user:pw@gpu-7:8000/v1?x=y for a token"}}`, "for a token"},
		"a name":          {429, `{"error":{"message":"gpu-7:8000 is busy"}}`, "is busy"},
		"a mistake":       {400, `{"error":{"message":"rack-7 says: messages.0.content of llama3.2:1b is odd, see https://example.com/x"}}`, "messages.0.content of llama3.2:1b is odd, see https://example.com/x"},
		"the model":       {404, `{"error":{"message":"model llama3.2:1b not found, try pulling it first"}}`, "model llama3.2:1b not found, try pulling it first"},
	} {
		w := newWorld(t, nil)
		w.node("rack-7", func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(test.code)
			_, _ = io.WriteString(rw, strings.ReplaceAll(test.body, "HOST", r.Host))
		}, nil)
		failed := w.call(t.Context(), target(nil), false)
		if failed == nil || !strings.Contains(failed.Public(), test.says) {
			t.Errorf("%s: %+v, want %q", name, failed, test.says)
			continue
		}
		for _, secret := range []string{"trycloudflare", "10.10.0.15", "8000", "internal", "fd00", "::7", "user:pw", "gpu-7", "rack-7"} {
			if strings.Contains(failed.Public(), secret) {
				t.Errorf("%s: %q shows %s", name, failed.Public(), secret)
			}
		}
	}
}

// TestAnAnswerThatFillsTheMemory is not read to its end.
func TestAnAnswerThatFillsTheMemory(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, streamed bool) {
		w := newWorld(t, nil)
		w.node("n", func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			rw.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[streamed])
			_, _ = io.WriteString(rw, map[bool]string{true: "data: ", false: ""}[streamed]+`{"choices":[{"message":{"content":"`)
			piece := strings.Repeat("a", 1<<20)
			for range 64 {
				if _, err := io.WriteString(rw, piece); err != nil {
					return
				}
			}
			t.Error("the whole answer was read")
		}, nil)
		if failed := w.call(t.Context(), target(nil), streamed); failed == nil || failed.Kind != vendors.Unavailable || failed.Node != "n" {
			t.Errorf("ended in %+v", failed)
		}
		w.free("n")
	})
}

// TestARefusalIsNoMeasure: how long a request takes is learned from those that were served.
func TestARefusalIsNoMeasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began, end := make(chan struct{}, 1), make(chan struct{})
	refuses := true
	w.node("n", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if refuses {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(rw, whole)
	}, nil)
	if failed := w.call(t.Context(), target(nil), false); failed == nil || failed.Kind != vendors.Invalid {
		t.Fatalf("ended in %+v", failed)
	}
	w.free("n")
	refuses = false
	first := make(chan *vendors.Error, 1)
	go func() { first <- w.call(t.Context(), target(nil), false) }()
	<-began
	if failed := w.call(t.Context(), target(nil), false); failed == nil || failed.Kind != vendors.Busy || failed.RetryAfter != 0 {
		t.Errorf("a wait is promised that nobody knows: %+v", failed)
	}
	close(end)
	<-first
}

// TestASpeedThatCannotBe is no measure, for others are compared with it.
func TestASpeedThatCannotBe(t *testing.T) {
	t.Parallel()
	for count, want := range map[string]bool{"200": true, "4611686018427387904": false} {
		w := newWorld(t, nil)
		w.node("n", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, `data: {"id":"i","choices":[{"delta":{"content":"hi"}}]}`+"\n\n")
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(100 * time.Millisecond)
			_, _ = io.WriteString(rw, `data: {"id":"i","choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":`+count+`}}`+
				"\n\ndata: [DONE]\n\n")
		}, nil)
		if failed := w.call(t.Context(), target(nil), true); failed != nil {
			t.Fatal(failed)
		}
		w.free("n")
		node, _, err := w.machines.Beat(t.Context(), "n", pool.NodeReport{}) // which shows what was measured
		if err != nil {
			t.Fatal(err)
		}
		if got := node.Speeds["m"].TPS; (got > 0) != want {
			t.Errorf("of %s tokens a speed of %v was learned", count, got)
		}
	}
}

// TestAnEngineThatHangsAndListsItsModels: who gives up after long blames the machine, who leaves early does not.
func TestAnEngineThatHangsAndListsItsModels(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, streamed bool) {
		for stall, failures := range map[time.Duration]int64{time.Millisecond: 1, time.Hour: 0} {
			w := newWorld(t, func(o *nodes.Options) { o.Pulse.Stall = stall })
			began := make(chan struct{}, 1)
			w.node("n", func(rw http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/models") {
					answers(rw, r)
					return
				}
				_, _ = io.ReadAll(r.Body)
				rw.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(rw).Flush()
				began <- struct{}{}
				<-r.Context().Done()
			}, nil)
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-began
				time.Sleep(20 * time.Millisecond)
				leave()
			}()
			if failed := w.call(ctx, target(nil), streamed); failed == nil || failed.Kind != vendors.Canceled || failed.Node != "" {
				t.Errorf("ended in %+v", failed)
			}
			w.free("n")
			loads, err := w.machines.Loads(t.Context(), "m", []string{"n"})
			if err != nil || loads[0].Failures != failures {
				t.Errorf("after %v as the most, %d failures are counted, want %d (%v)", stall, loads[0].Failures, failures, err)
			}
		}
	})
}

// TestTheTimeIsOverInTheLine, which is nobody's silence.
func TestTheTimeIsOverInTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began, end := make(chan struct{}, 1), make(chan struct{})
	w.node("n", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(rw, whole)
	}, nil)
	first := make(chan *vendors.Error, 1)
	go func() { first <- w.call(t.Context(), target(nil), false) }()
	<-began
	ctx, over := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { over(vendors.ErrSilent) })
	failed := w.call(ctx, target(func(v *vendors.Visit) { v.Patience = patience }), true)
	if failed == nil || failed.Kind != vendors.Busy || !failed.Unsent || failed.Node != "" {
		t.Errorf("ended in %+v", failed)
	}
	close(end)
	if failed := <-first; failed != nil {
		t.Error(failed)
	}
}
