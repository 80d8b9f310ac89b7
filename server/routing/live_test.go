package routing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// source is a store that answers what the test sets.
type source struct {
	mu       sync.Mutex
	cfg      *store.Config
	err      error
	reads    int
	versions int
	// hold, if set, is received from before a read is answered, with what the store held when the read began.
	hold chan struct{}
}

func (s *source) Config(ctx context.Context) (*store.Config, error) {
	s.mu.Lock()
	s.reads++
	cfg, err, hold := s.cfg, s.err, s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return cfg, err
}

func (s *source) ConfigVersion(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions++
	if s.err != nil {
		return 0, s.err
	}
	return s.cfg.Version, nil
}

// set stores a configuration at the version, with one model named after it.
func (s *source) set(version int64, change ...func(*store.Config)) {
	cfg := config([]*ktmsv1.ModelSpec{model("m", vendors.OpenAI)})
	cfg.Version = version
	for _, f := range change {
		f(cfg)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg, s.err = cfg, nil
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *source) counts() (reads, versions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.versions
}

func broken(cfg *store.Config) { cfg.Rules[0].Use = []string{"gone"} }

// lines is a log to look into.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), part)
}

// live starts at version 1 unless the test prepared the source.
func live(t *testing.T, s *source, change ...func(*routing.Options)) (*routing.Live, *lines) {
	t.Helper()
	log := &lines{}
	opts := routing.Options{Store: s, Open: open, Log: slog.New(slog.NewTextHandler(log, nil))}
	for _, f := range change {
		f(&opts)
	}
	l := routing.NewLive(opts)
	if s.cfg == nil {
		s.set(1)
	}
	if err := l.Load(t.Context()); err != nil {
		t.Fatalf("Load: %v", err)
	}
	return l, log
}

func TestLive_Load(t *testing.T) {
	l, log := live(t, &source{})
	if got := l.Table().Version(); got != 1 {
		t.Errorf("got version %d, want 1", got)
	}
	if log.count("configuration applied") != 1 {
		t.Error("the first version is not logged")
	}
}

func TestLive_BeforeLoadNothingIsConfigured(t *testing.T) {
	l := routing.NewLive(routing.Options{Store: &source{}, Open: open, Log: slog.New(slog.DiscardHandler)})
	if l.Table() == nil || l.Table().Configured() {
		t.Fatalf("got %v", l.Table())
	}
	if _, err := l.Table().Plan(key, routing.Query{Effort: low}, nil); reason(err) != status.NotConfigured {
		t.Errorf("got %v, want not_configured", err)
	}
}

func TestLive_LoadFails(t *testing.T) {
	down := errors.New("connection refused")
	for _, test := range []struct {
		name string
		do   func(*source)
		want string
	}{
		{"no store", func(s *source) { s.fail(down) }, "read the configuration: connection refused"},
		{"mistakes", func(s *source) { s.set(4, broken) },
			`configuration version 4: bad_request: rules[0].use[0]: model "gone" is not in the catalogue`},
	} {
		s := &source{}
		test.do(s)
		l := routing.NewLive(routing.Options{Store: s, Open: open, Log: slog.New(slog.DiscardHandler)})
		if err := l.Load(t.Context()); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

func TestLive_LoadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{hold: make(chan struct{})}
		l := routing.NewLive(routing.Options{Store: s, Open: open, Log: slog.New(slog.DiscardHandler)})
		begin := time.Now()
		err := l.Load(t.Context())
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 30*time.Second {
			t.Errorf("got %v after %v, want a deadline after 30 s", err, took)
		}
	})
}

func TestLive_WrongKeyring(t *testing.T) {
	refuse := func(k store.VendorKey) (vendors.Secret, error) {
		if k.KeyID == "readable" {
			return open(k)
		}
		return vendors.Secret{}, errors.New("sealed with version 3, which the keyring lacks")
	}
	for _, test := range []struct {
		name string
		keys []store.VendorKey
		want bool
	}{
		{"no vendor keys", nil, false},
		{"none can be opened", []store.VendorKey{credential("a", "openai"), credential("b", "groq")}, true},
		{"some can be opened", []store.VendorKey{credential("a", "openai"), credential("readable", "groq")}, false},
	} {
		s := &source{}
		s.set(1, func(cfg *store.Config) { cfg.VendorKeys = test.keys })
		l := routing.NewLive(routing.Options{Store: s, Open: refuse, Log: slog.New(slog.DiscardHandler)})
		err := l.Load(t.Context())
		if errors.Is(err, routing.ErrWrongKeyring) != test.want || !test.want && err != nil {
			t.Errorf("%s: got %v", test.name, err)
		}
		if test.want && (!strings.Contains(err.Error(), "none of the 2 stored vendor keys") ||
			strings.Count(err.Error(), "sealed with version 3") != 1) {
			t.Errorf("%s: the text is %q", test.name, err)
		}
	}
}

func TestLive_Reload(t *testing.T) {
	s := &source{}
	l, _ := live(t, s)

	s.set(2)
	if err := l.Reload(t.Context(), 2); err != nil || l.Table().Version() != 2 {
		t.Fatalf("got version %d, %v", l.Table().Version(), err)
	}
	reads, _ := s.counts()
	if err := l.Reload(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if again, _ := s.counts(); again != reads {
		t.Error("a version that is there already was read again")
	}
	if err := l.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if again, _ := s.counts(); again != reads {
		t.Error("an unchanged configuration was read again")
	}
	s.set(5)
	if err := l.Reload(t.Context(), 0); err != nil || l.Table().Version() != 5 {
		t.Errorf("got version %d, %v", l.Table().Version(), err)
	}
	if err := l.Reload(t.Context(), 9); err == nil || l.Table().Version() != 5 {
		t.Errorf("a version that the store lacks: got version %d, %v", l.Table().Version(), err)
	}
}

func TestLive_NeverGoesBack(t *testing.T) {
	s := &source{}
	s.set(8)
	l, _ := live(t, s)
	s.set(3)
	if err := l.Reload(t.Context(), 0); err != nil || l.Table().Version() != 8 {
		t.Errorf("asked for the latest: got version %d, %v", l.Table().Version(), err)
	}
	if err := l.Reload(t.Context(), 9); err == nil || l.Table().Version() != 8 {
		t.Errorf("asked for more: got version %d, %v", l.Table().Version(), err)
	}
}

func TestLive_TheLastGoodOneStays(t *testing.T) {
	s := &source{}
	l, log := live(t, s)
	const notReloaded = "configuration not reloaded"

	s.set(2, broken)
	for range 3 {
		if err := l.Reload(t.Context(), 2); reason(err) != status.BadRequest {
			t.Fatalf("got %v, want the mistakes", err)
		}
	}
	if log.count(notReloaded) != 1 || log.count("version=2") != 1 {
		t.Errorf("a broken version was logged %d times, want once", log.count(notReloaded))
	}
	if l.Table().Version() != 1 {
		t.Errorf("got version %d, want the good one", l.Table().Version())
	}

	s.set(3, broken)
	for range 2 {
		_ = l.Reload(t.Context(), 0)
	}
	if got := log.count(notReloaded); got != 2 {
		t.Errorf("the next broken version was logged %d times, want once more", got-1)
	}

	s.fail(store.ErrUnavailable)
	for range 3 {
		if err := l.Reload(t.Context(), 0); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v, want the store's error", err)
		}
		if err := l.Reload(t.Context(), 4); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v, want the store's error", err)
		}
	}
	if got := log.count(notReloaded); got != 3 {
		t.Errorf("an outage was logged %d times, want once", got-2)
	}

	s.set(4)
	if err := l.Reload(t.Context(), 4); err != nil || l.Table().Version() != 4 {
		t.Errorf("got version %d, %v", l.Table().Version(), err)
	}
	s.fail(store.ErrUnavailable)
	_ = l.Reload(t.Context(), 0)
	if got := log.count(notReloaded); got != 4 {
		t.Errorf("the next outage was logged %d times, want once", got-3)
	}
}

func TestLive_ACallerThatLeavesIsNoFailure(t *testing.T) {
	s := &source{}
	l, log := live(t, s)
	s.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.set(2)
	if err := l.Reload(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if log.count("level=ERROR") != 0 {
		t.Error("the log has an error")
	}
}

func TestLive_ReloadsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		l, _ := live(t, s)
		s.set(2)
		s.hold = make(chan struct{})
		done := make(chan error)
		for range 10 {
			go func() { done <- l.Reload(t.Context(), 2) }()
		}
		synctest.Wait() // one reads, nine wait for it
		close(s.hold)
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if reads, _ := s.counts(); reads != 2 { // Load and one Reload
			t.Errorf("got %d reads, want 2", reads)
		}
	})
}

// TestLive_RotatingTheKeyring follows a replica whose keyring lacks the newest version, as it happens while replicas
// are deployed one by one.
func TestLive_RotatingTheKeyring(t *testing.T) {
	unreadable := map[string]bool{}
	counted := 0
	sealed := func(key, vendor, secret, fingerprint string) store.VendorKey {
		k := credential(key, vendor)
		k.Sealed, k.Fingerprint = []byte(secret), fingerprint
		return k
	}
	s := &source{}
	with := func(keys ...store.VendorKey) func(*store.Config) {
		return func(cfg *store.Config) { cfg.VendorKeys = keys }
	}
	s.set(1, with(sealed("k", "openai", "old-secret", "old-fingerprint"), sealed("other", "openai", "theirs", "their-fingerprint")))
	l, log := live(t, s, func(o *routing.Options) {
		o.Open = func(k store.VendorKey) (vendors.Secret, error) {
			if unreadable[string(k.Sealed)] {
				return vendors.Secret{}, errors.New("sealed with version 2")
			}
			return open(k)
		}
		o.Unreadable = func(n int) { counted += n }
	})
	held := func(key string) (secret, fingerprint string) {
		plan, err := l.Table().Plan(&caller.Caller{KeyID: key}, routing.Query{Effort: low}, nil)
		if err != nil {
			return "", string(reason(err))
		}
		return plan.Candidates[0].Target.Key.Reveal(), plan.Candidates[0].Credential
	}
	reload := func(version int64) {
		t.Helper()
		if err := l.Reload(t.Context(), version); err != nil {
			t.Fatal(err)
		}
	}
	want := func(key, secret, fingerprint string) {
		t.Helper()
		if s, p := held(key); s != secret || p != fingerprint {
			t.Errorf("%s: got %q, %q; want %q, %q", key, s, p, secret, fingerprint)
		}
	}

	// A changed key and a new one, both beyond this keyring: the first keeps what was there, the second has nothing.
	unreadable["new-secret"], unreadable["first-secret"] = true, true
	s.set(2, with(sealed("k", "openai", "new-secret", "new-fingerprint"), sealed("n", "openai", "first-secret", "first-fingerprint"),
		sealed("other", "openai", "theirs", "their-fingerprint")))
	reload(2)
	want("k", "old-secret", "old-fingerprint")
	want("n", "", "no_vendor_key")
	want("other", "theirs", "their-fingerprint")
	if counted != 2 || log.count("vendor key cannot be opened") != 2 ||
		log.count(`key=k-name vendor=openai error="sealed with version 2" earlier_credential_kept=true`) != 1 ||
		log.count(`key=n-name vendor=openai error="sealed with version 2" earlier_credential_kept=false`) != 1 {
		t.Errorf("counted %d, log:\n%s", counted, log.buf.String())
	}

	// It outlives the next reload, and one in which nothing at all can be opened.
	unreadable["theirs"] = true
	s.set(3, with(sealed("k", "openai", "new-secret", "new-fingerprint"), sealed("other", "openai", "theirs", "their-fingerprint")))
	reload(3)
	want("k", "old-secret", "old-fingerprint")
	want("other", "theirs", "their-fingerprint")
	if counted != 4 {
		t.Errorf("counted %d, want 4", counted)
	}

	// Deleted means gone, and a credential never serves another vendor or key.
	s.set(4, with(sealed("k", "groq", "new-secret", "new-fingerprint"), sealed("x", "openai", "new-secret", "new-fingerprint")))
	reload(4)
	want("k", "", "no_vendor_key")
	want("x", "", "no_vendor_key")

	// With the new keyring everything is read.
	clear(unreadable)
	s.set(5, with(sealed("k", "openai", "new-secret", "new-fingerprint")))
	reload(5)
	want("k", "new-secret", "new-fingerprint")
	if log.count("secret") != 0 {
		t.Errorf("the log holds a secret:\n%s", log.buf.String())
	}
}

func TestLive_Run(t *testing.T) {
	const poll = time.Minute
	run := func(t *testing.T, s *source, poll time.Duration, do func(*testing.T, *routing.Live, *lines)) {
		synctest.Test(t, func(t *testing.T) {
			l, log := live(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); l.Run(ctx, poll) }()
			do(t, l, log)
			cancel()
			<-ended
		})
	}
	version := func(t *testing.T, l *routing.Live, want int64) {
		t.Helper()
		if got := l.Table().Version(); got != want {
			t.Errorf("got version %d, want %d", got, want)
		}
	}

	t.Run("a change is followed at once", func(t *testing.T) {
		s := &source{}
		run(t, s, poll, func(t *testing.T, l *routing.Live, _ *lines) {
			s.set(2)
			l.Notify(store.Change{Version: 2})
			synctest.Wait()
			version(t, l, 2)
		})
	})
	t.Run("an unknown change is asked about", func(t *testing.T) {
		s := &source{}
		run(t, s, poll, func(t *testing.T, l *routing.Live, _ *lines) {
			l.Notify(store.Change{All: true})
			synctest.Wait()
			if reads, versions := s.counts(); reads != 1 || versions != 1 {
				t.Errorf("got %d reads and %d questions, want 1 and 1", reads, versions)
			}
			s.set(2)
			l.Notify(store.Change{All: true})
			synctest.Wait()
			version(t, l, 2)
		})
	})
	t.Run("a known change costs nothing", func(t *testing.T) {
		s := &source{}
		run(t, s, poll, func(t *testing.T, l *routing.Live, _ *lines) {
			l.Notify(store.Change{Version: 1})
			synctest.Wait()
			if reads, versions := s.counts(); reads != 1 || versions != 0 {
				t.Errorf("got %d reads and %d questions, want 1 and 0", reads, versions)
			}
		})
	})
	t.Run("a missed change is found by the poll", func(t *testing.T) {
		s := &source{}
		run(t, s, poll, func(t *testing.T, l *routing.Live, _ *lines) {
			s.set(2)
			time.Sleep(poll - time.Nanosecond) // the bubble's clock
			synctest.Wait()
			version(t, l, 1)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			version(t, l, 2)
		})
	})
	t.Run("without a poll changes are followed still", func(t *testing.T) {
		s := &source{}
		run(t, s, 0, func(t *testing.T, l *routing.Live, _ *lines) {
			s.set(2)
			time.Sleep(time.Hour)
			synctest.Wait()
			version(t, l, 1)
			l.Notify(store.Change{Version: 2})
			synctest.Wait()
			version(t, l, 2)
		})
	})
	t.Run("many changes never block and end at the last", func(t *testing.T) {
		s := &source{}
		run(t, s, poll, func(t *testing.T, l *routing.Live, _ *lines) {
			hold := make(chan struct{})
			s.mu.Lock()
			s.hold = hold
			s.mu.Unlock()
			for v := int64(2); v <= 500; v++ {
				s.set(v)
				l.Notify(store.Change{Version: v})
				if v == 2 {
					synctest.Wait() // Run reads version 2 and is held there, while the others come
				}
			}
			close(hold)
			synctest.Wait()
			version(t, l, 500)
			if reads, _ := s.counts(); reads != 3 {
				t.Errorf("got %d reads, want 3", reads)
			}
		})
	})
	t.Run("an outage ends with the next poll", func(t *testing.T) {
		s := &source{}
		run(t, s, poll, func(t *testing.T, l *routing.Live, log *lines) {
			s.fail(store.ErrUnavailable)
			l.Notify(store.Change{Version: 2})
			time.Sleep(5 * poll)
			synctest.Wait()
			version(t, l, 1)
			if got := log.count("configuration not reloaded"); got != 1 {
				t.Errorf("logged %d times, want once", got)
			}
			s.set(2)
			time.Sleep(poll)
			synctest.Wait()
			version(t, l, 2)
		})
	})
	t.Run("a failed reload is tried again", func(t *testing.T) {
		s := &source{}
		run(t, s, 0, func(t *testing.T, l *routing.Live, _ *lines) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			hold := make(chan struct{})
			s.mu.Lock()
			s.hold = hold
			s.mu.Unlock()
			s.set(2)
			if err := l.Reload(ctx, 2); err == nil {
				t.Error("a canceled reload succeeded")
			}
			close(hold)
			synctest.Wait()
			version(t, l, 2)
		})
	})
}

func TestLive_TablesAreReadWhileTheyChange(t *testing.T) {
	s := &source{}
	l, _ := live(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx, time.Millisecond) })
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := l.Table().Plan(key, routing.Query{Effort: low}, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for v := int64(2); v <= 50; v++ {
		s.set(v)
		l.Notify(store.Change{Version: v})
		if err := l.Reload(t.Context(), v); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
	if got := l.Table().Version(); got != 50 {
		t.Errorf("got version %d, want 50", got)
	}
}
