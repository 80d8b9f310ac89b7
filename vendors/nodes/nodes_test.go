package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/nodes"
)

// patience is how long something may take that happens at once on an idle machine.
const patience = time.Minute

const (
	whole  = `{"id":"i","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	stream = `data: {"id":"i","choices":[{"delta":{"content":"hi"}}]}` + "\n\n" +
		`data: {"id":"i","choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

// world is a pool of nodes with scripted engines.
type world struct {
	*testing.T
	machines *memory.Nodes
	vendor   *nodes.Vendor
}

func newWorld(t *testing.T, change func(*nodes.Options)) *world {
	w := &world{T: t, machines: memory.NewNodes(memory.NodesOptions{})}
	options := nodes.Options{Nodes: w.machines, TTL: time.Hour, AllowLocal: true, Policy: selection.DefaultPolicy(),
		Open: func(_ string, sealed []byte) (vendors.Secret, error) { return vendors.NewSecret(string(sealed)), nil }}
	if change != nil {
		change(&options)
	}
	w.vendor = nodes.New(options)
	t.Cleanup(w.vendor.CloseIdleConnections)
	return w
}

// run keeps leases alive until the test ends.
func (w *world) run() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.vendor.Run(ctx)
	}()
	w.Cleanup(func() {
		stop()
		<-done
	})
}

// node registers an engine; change may alter what it says.
func (w *world) node(id string, engine http.HandlerFunc, change func(*pool.NodeSpec, *pool.NodeReport)) {
	w.Helper()
	server := httptest.NewServer(engine)
	w.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	spec := pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: server.URL, KeyID: "k", MaxConcurrent: 1}
	report := pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "m", Warm: true, Context: 1000}}}
	if change != nil {
		change(&spec, &report)
	}
	if err := w.machines.Register(w.Context(), spec, report); err != nil {
		w.Fatal(err)
	}
}

// free waits until no slot is taken.
func (w *world) free(ids ...string) {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		loads, err := w.machines.Loads(w.Context(), "m", ids)
		if err != nil {
			w.Fatal(err)
		}
		taken := int64(0)
		for _, load := range loads {
			taken += load.InFlight + load.Queued
		}
		if taken == 0 {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("slots are still taken: %+v", loads)
		}
	}
}

func answers(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.HasSuffix(r.URL.Path, "/models"):
		_, _ = io.WriteString(rw, `{"data":[]}`)
	case strings.Contains(string(body), `"stream":true`):
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, stream)
	default:
		_, _ = io.WriteString(rw, whole)
	}
}

func target(change func(*vendors.Visit)) vendors.Target {
	t := vendors.Target{Vendor: vendors.Local, Model: "m", Visit: vendors.Visit{Tenant: "t", PromptTokens: 10}}
	if change != nil {
		change(&t.Visit)
	}
	return t
}

func hello() *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "hello"}}}
}

// call makes a call in either way and returns its error.
func (w *world) call(ctx context.Context, t vendors.Target, streamed bool) *vendors.Error {
	var err error
	if streamed {
		for _, err = range w.vendor.Stream(ctx, t, hello()) {
			if err != nil {
				break
			}
		}
	} else {
		_, err = w.vendor.Generate(ctx, t, hello())
	}
	failed, _ := errors.AsType[*vendors.Error](err)
	if err != nil && failed == nil {
		w.Errorf("%v is no vendors.Error", err)
	}
	return failed
}

func bothWays(t *testing.T, test func(t *testing.T, streamed bool)) {
	t.Run("unary", func(t *testing.T) {
		t.Parallel()
		test(t, false)
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		test(t, true)
	})
}

// TestASlotIsGivenBackHoweverTheCallEnds: and the error says whether another machine may do.
func TestASlotIsGivenBackHoweverTheCallEnds(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(code)
			_, _ = io.WriteString(rw, body)
		}
	}
	bothWays(t, func(t *testing.T, streamed bool) {
		for name, test := range map[string]struct {
			engine http.HandlerFunc
			kind   vendors.Kind
			fails  bool
			node   string
			failed int64 // failures that the circuit counts
		}{
			"answered":              {engine: answers},
			"overloaded":            {status(503, `{"error":{"message":"busy"}}`), vendors.Unavailable, true, "n", 1},
			"crashed":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, vendors.Unavailable, true, "n", 1},
			"model missing":         {status(404, `{"error":{"message":"model not found","type":"not_found_error"}}`), vendors.Denied, true, "n", 1},
			"token refused":         {status(401, `{}`), vendors.Denied, true, "n", 1},
			"too many requests":     {status(429, `{}`), vendors.RateLimited, true, "n", 0},
			"too long for this one": {status(400, `{"error":{"message":"maximum context length is 10"}}`), vendors.Overflow, true, "n", 0},
			"a mistake":             {status(400, `{"error":{"message":"temperature is odd"}}`), vendors.Invalid, true, "n", 0},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, nil)
				w.node("n", test.engine, nil)
				failed := w.call(t.Context(), target(nil), streamed)
				if (failed != nil) != test.fails {
					t.Fatalf("ended in %v", failed)
				}
				if failed != nil && (failed.Kind != test.kind || failed.Node != test.node || failed.Vendor != vendors.Local || failed.Unsent) {
					t.Errorf("%+v, want kind %v and node %q", failed, test.kind, test.node)
				}
				w.free("n")
				if loads, _ := w.machines.Loads(t.Context(), "m", []string{"n"}); loads[0].Failures != test.failed {
					t.Errorf("%d failures are counted, want %d", loads[0].Failures, test.failed)
				}
			})
		}
	})
}

// TestACutStreamIsAFailure: an engine that is killed may end its stream like one that is done, but for the finish reason.
func TestACutStreamIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.node("n", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, `data: {"id":"i","choices":[{"delta":{"content":"hi"}}]}`+"\n\n")
	}, nil)
	if failed := w.call(t.Context(), target(nil), true); failed == nil || failed.Kind != vendors.Unavailable || failed.Node != "n" {
		t.Errorf("ended in %v", failed)
	}
	w.free("n")
}

// TestACallerThatLeavesBlamesNobody: while it waits for a slot, for the answer, or within it.
func TestACallerThatLeavesBlamesNobody(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, streamed bool) {
		began := make(chan struct{}, 1)
		w := newWorld(t, nil)
		w.node("n", func(_ http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
		}, nil)
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan *vendors.Error, 1)
		go func() { first <- w.call(ctx, target(nil), streamed) }()
		<-began
		waits, leaveTheLine := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, leaveTheLine)
		failed := w.call(waits, target(func(v *vendors.Visit) { v.Patience = patience }), streamed)
		if failed == nil || failed.Kind != vendors.Canceled || !failed.Unsent {
			t.Errorf("who left the line got %+v", failed)
		}
		leave()
		if failed := <-first; failed == nil || failed.Kind != vendors.Canceled || failed.Unsent {
			t.Errorf("who left the call got %+v", failed)
		}
		w.free("n")
		if loads, _ := w.machines.Loads(t.Context(), "m", []string{"n"}); loads[0].Failures != 0 {
			t.Errorf("the node is blamed: %+v", loads[0])
		}
	})
}

// TestNeverMoreThanTheSlots: many calls on few slots, all of which wait their turn.
func TestNeverMoreThanTheSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.run()
	slots := map[string]int64{"a": 1, "b": 2, "c": 3}
	for id, most := range slots {
		var now atomic.Int64
		w.node(id, func(rw http.ResponseWriter, r *http.Request) {
			if got := now.Add(1); got > most {
				t.Errorf("%s has %d calls on %d slots", id, got, most)
			}
			time.Sleep(2 * time.Millisecond)
			now.Add(-1)
			answers(rw, r)
		}, func(spec *pool.NodeSpec, _ *pool.NodeReport) { spec.MaxConcurrent = most })
	}
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			if failed := w.call(t.Context(), target(func(v *vendors.Visit) { v.Patience = patience }), i%2 == 0); failed != nil {
				t.Errorf("a call that had patience ended in %v", failed)
			}
		})
	}
	calls.Wait()
	w.free("a", "b", "c")
}

// TestBusy: without patience, or where the line is longer than it, the next model is asked at once.
func TestBusy(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}, 1), make(chan struct{})
	w := newWorld(t, nil)
	w.node("n", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(rw, whole)
	}, func(_ *pool.NodeSpec, report *pool.NodeReport) {
		report.Active, report.Waiting = new(int64(0)), new(int64(0))
	})
	first := make(chan *vendors.Error, 1)
	go func() { first <- w.call(t.Context(), target(nil), false) }()
	<-began
	for _, wait := range []time.Duration{0, 30 * time.Millisecond} {
		started := time.Now()
		failed := w.call(t.Context(), target(func(v *vendors.Visit) { v.Patience = wait }), true)
		if failed == nil || failed.Kind != vendors.Busy || !failed.Unsent || failed.Node != "" {
			t.Errorf("with a patience of %v: %+v", wait, failed)
		}
		if waited := time.Since(started); waited < wait {
			t.Errorf("gave up after %v of %v", waited, wait)
		}
	}
	time.Sleep(100 * time.Millisecond) // what a request takes, as the next one will learn
	close(end)
	if failed := <-first; failed != nil {
		t.Fatal(failed)
	}
	w.free("n")

	// A hundred others wait in the engine, so that it takes ten seconds at least.
	if _, _, err := w.machines.Beat(t.Context(), "n", pool.NodeReport{Level: selection.FullLevel, Active: new(int64(1)), Waiting: new(int64(100)),
		Models: []pool.NodeModel{{ID: "m", Warm: true}}}); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	failed := w.call(t.Context(), target(func(v *vendors.Visit) { v.Patience = 5 * time.Second }), true)
	if failed == nil || failed.Kind != vendors.Busy || failed.RetryAfter < 5*time.Second {
		t.Errorf("a hopeless wait: %+v", failed)
	}
	if waited := time.Since(started); waited > 4*time.Second {
		t.Errorf("a hopeless wait took %v", waited)
	}
}

// TestLeasesLiveWithTheirCalls: a call may be longer than its lease, and a gateway that dies frees its slots.
func TestLeasesLiveWithTheirCalls(t *testing.T) {
	t.Parallel()
	const lease = 400 * time.Millisecond
	for _, lives := range []bool{true, false} {
		t.Run(fmt.Sprint("the gateway lives: ", lives), func(t *testing.T) {
			t.Parallel()
			began, end := make(chan struct{}, 1), make(chan struct{})
			w := newWorld(t, func(o *nodes.Options) { o.Lease = lease })
			if lives {
				w.run()
			}
			w.node("n", func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				began <- struct{}{}
				<-end
				_, _ = io.WriteString(rw, whole)
			}, nil)
			first := make(chan *vendors.Error, 1)
			go func() { first <- w.call(t.Context(), target(nil), false) }()
			<-began
			time.Sleep(2 * lease)
			loads, err := w.machines.Loads(t.Context(), "m", []string{"n"})
			if err != nil {
				t.Fatal(err)
			}
			// A machine that is too busy to renew in time is not what this is about, but one that never is.
			if want := map[bool]int64{true: 1, false: 0}[lives]; loads[0].InFlight != want {
				t.Errorf("%d leases after twice their life, want %d", loads[0].InFlight, want)
			}
			close(end)
			if failed := <-first; failed != nil {
				t.Error(failed)
			}
			w.free("n")
		})
	}
}

// TestASilentMachine: one that hangs is left, one that works hard is not.
func TestASilentMachine(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, streamed bool) {
		for _, hangs := range []bool{true, false} {
			t.Run(fmt.Sprint("hangs: ", hangs), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(o *nodes.Options) {
					o.Pulse = nodes.Pulse{Look: 10 * time.Millisecond, Silence: 50 * time.Millisecond, Answer: 300 * time.Millisecond}
				})
				w.run()
				asked := make(chan struct{}, 100)
				w.node("n", func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.ReadAll(r.Body)
					switch {
					case hangs:
						<-r.Context().Done()
					case strings.HasSuffix(r.URL.Path, "/v1/models"):
						asked <- struct{}{}
						answers(rw, r)
					default:
						<-asked // it was asked, and the call goes on
						answers(rw, r)
					}
				}, nil)
				failed := w.call(t.Context(), target(nil), streamed)
				switch {
				case !hangs && failed != nil:
					t.Errorf("a machine that works was left: %v", failed)
				case hangs && (failed == nil || failed.Kind != vendors.Unavailable || failed.Node != "n"):
					t.Errorf("a machine that hangs: %+v", failed)
				}
				w.free("n")
			})
		}
	})
}

// TestWhoMayNotServe: the error says why, nothing is sent, and the next model is asked.
func TestWhoMayNotServe(t *testing.T) {
	t.Parallel()
	never := func(http.ResponseWriter, *http.Request) { t.Error("a machine was called") }
	for name, test := range map[string]struct {
		change func(*pool.NodeSpec, *pool.NodeReport)
		visit  func(*vendors.Visit)
		kind   vendors.Kind
		says   string
	}{
		"too long":  {nil, func(v *vendors.Visit) { v.PromptTokens = 1001 }, vendors.Overflow, "take 1000 at most"},
		"tried":     {nil, func(v *vendors.Visit) { v.Tried = []string{"n"} }, vendors.Busy, "has failed"},
		"draining":  {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Draining = true }, nil, vendors.Busy, "1: draining"},
		"trouble":   {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Trouble = "x" }, nil, vendors.Busy, "1: circuit broken"},
		"paused":    {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Level = 0 }, nil, vendors.Busy, "1: paused"},
		"not there": {func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Models = nil }, nil, vendors.Busy, "none in the pool reports it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.node("n", never, test.change)
			failed := w.call(t.Context(), target(test.visit), true)
			if failed == nil || failed.Kind != test.kind || !failed.Unsent || !strings.Contains(failed.Message, test.says) {
				t.Errorf("%+v, want %v with %q", failed, test.kind, test.says)
			}
			absent := w.vendor.Absent("m")
			if test.visit != nil {
				if absent != "" {
					t.Errorf("a machine is there, but: %s", absent)
				}
			} else if !strings.Contains(absent, test.says) {
				t.Errorf("absent is %q, want %q", absent, test.says)
			}
		})
	}
}

// TestAnAddressThatIsNotAllowedAnyMore is found at the dial, and its address stays out of what callers read.
func TestAnAddressThatIsNotAllowedAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *nodes.Options) { o.AllowLocal = false })
	w.node("n", func(http.ResponseWriter, *http.Request) { t.Error("the machine was called") }, nil)
	failed := w.call(t.Context(), target(nil), false)
	if failed == nil || failed.Kind != vendors.Unavailable || !failed.Unsent || failed.Node != "n" || strings.Contains(failed.Public(), "127.0.0.1") {
		t.Errorf("%+v", failed)
	}
	w.free("n")
}

// TestWhatTheEngineIsAsked: by the engine's dialect and with its token.
func TestWhatTheEngineIsAsked(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"ollama", "vllm"} {
		w := newWorld(t, nil)
		bodies, keys := make(chan string, 1), make(chan string, 1)
		w.node("n", func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies <- string(body)
			keys <- r.Header.Get("Authorization")
			_, _ = io.WriteString(rw, whole)
		}, func(spec *pool.NodeSpec, _ *pool.NodeReport) {
			spec.Engine, spec.Token = engine, []byte("engine-token")
		})
		to := target(nil)
		to.Capabilities = []string{"no_thinking"}
		to.Key = vendors.NewSecret("somebody else's")
		if failed := w.call(t.Context(), to, false); failed != nil {
			t.Fatal(failed)
		}
		if body, key := <-bodies, <-keys; strings.Contains(body, `"reasoning_effort":"none"`) != (engine == "ollama") || key != "Bearer engine-token" {
			t.Errorf("%s was asked %s with %q", engine, body, key)
		}
	}
}

// TestTheSameBeginningGoesToTheSameMachine, which has read it already.
func TestTheSameBeginningGoesToTheSameMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	served := make(chan string, 1)
	for _, id := range []string{"a", "b", "c"} {
		w.node(id, func(rw http.ResponseWriter, r *http.Request) {
			served <- id
			answers(rw, r)
		}, func(spec *pool.NodeSpec, report *pool.NodeReport) {
			spec.MaxConcurrent, report.Models[0].Context = 4, 0
		})
	}
	who := func() string {
		req := hello()
		req.BaseSystemInstruction = strings.Repeat("be kind ", 1000)
		to := target(func(v *vendors.Visit) { v.PromptTokens = 2000 })
		for _, err := range w.vendor.Stream(t.Context(), to, req) {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.free("a", "b", "c")
		return <-served
	}
	first := who()
	for range 5 {
		if next := who(); next != first {
			t.Errorf("the same prompt went to %s and %s", first, next)
		}
	}
}

// away is a pool that does not answer.
type away struct{ pool.Nodes }

func (away) Fleet(context.Context) (pool.Fleet, error) { return pool.Fleet{}, pool.ErrUnavailable }

// TestWithoutAStateNobodyIsCalled: the pool fails closed.
func TestWithoutAStateNobodyIsCalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *nodes.Options) { o.Nodes = away{o.Nodes} })
	w.node("n", func(http.ResponseWriter, *http.Request) { t.Error("a machine was called") }, nil)
	failed := w.call(t.Context(), target(nil), false)
	if failed == nil || failed.Kind != vendors.Busy || !failed.Unsent || !errors.Is(failed, pool.ErrUnavailable) {
		t.Errorf("%+v", failed)
	}
	if why := w.vendor.Absent("m"); !strings.Contains(why, "does not answer") {
		t.Errorf("absent: %q", why)
	}
}

// TestWeigh shows every node with its factors, and why one is out.
func TestWeigh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.node("a", answers, func(spec *pool.NodeSpec, _ *pool.NodeReport) { spec.BaseWeight = 50 })
	w.node("b", answers, nil)
	w.node("c", answers, func(_ *pool.NodeSpec, r *pool.NodeReport) { r.Draining = true })
	all, err := w.vendor.Weigh(t.Context(), "m", 100, 100)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if all[0].Base != 50 || all[0].Weight != 50 || all[0].Shortlisted || !all[1].Shortlisted || all[1].Weight != 100 || all[2].Verdict != selection.IsDraining {
		t.Errorf("%+v", all)
	}
}

// deaf is a pool that takes no slots back for a while.
type deaf struct {
	pool.Nodes
	is atomic.Bool
}

func (d *deaf) Release(ctx context.Context, release pool.Release) error {
	if d.is.Load() {
		return pool.ErrUnavailable
	}
	return d.Nodes.Release(ctx, release)
}

// TestASlotThatCouldNotBeGivenBackIsGivenBackLater, long before its lease ends.
func TestASlotThatCouldNotBeGivenBackIsGivenBackLater(t *testing.T) {
	t.Parallel()
	d := &deaf{}
	w := newWorld(t, func(o *nodes.Options) {
		d.Nodes = o.Nodes
		o.Nodes, o.Lease = d, time.Hour
	})
	w.run()
	w.node("n", answers, nil)
	d.is.Store(true)
	if failed := w.call(t.Context(), target(nil), false); failed != nil {
		t.Fatal(failed)
	}
	if failed := w.call(t.Context(), target(nil), false); failed == nil || failed.Kind != vendors.Busy {
		t.Fatalf("the slot is taken, and a call ended with %v", failed)
	}
	d.is.Store(false)
	w.free("n")
}

// TestALeaseThatThePoolHasLostIsTakenAnew: its call occupies the node all the same.
func TestALeaseThatThePoolHasLostIsTakenAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *nodes.Options) { o.Lease = 3 * time.Second })
	w.run()
	began, end := make(chan struct{}), make(chan struct{})
	w.node("n", func(rw http.ResponseWriter, r *http.Request) {
		close(began)
		<-end
		answers(rw, r)
	}, nil)
	done := make(chan *vendors.Error, 1)
	go func() { done <- w.call(t.Context(), target(nil), false) }()
	<-began
	fleet, err := w.machines.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := fleet.Nodes[0]
	if _, err := w.machines.Remove(t.Context(), "n", ""); err != nil {
		t.Fatal(err)
	}
	if err := w.machines.Register(t.Context(), n.NodeSpec, n.NodeReport); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		loads, err := w.machines.Loads(t.Context(), "m", []string{"n"})
		if err != nil {
			t.Fatal(err)
		}
		if loads[0].InFlight == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the call's slot is free")
		}
	}
	close(end)
	if failed := <-done; failed != nil {
		t.Error(failed)
	}
	w.free("n")
}
