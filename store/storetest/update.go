package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

var updateTests = []test{
	{"raises the version by one", testUpdateVersion},
	{"without a write changes nothing", testUpdateClean},
	{"that fails changes nothing", testUpdateFails},
	{"that panics changes nothing", testUpdatePanics},
	{"sees its own writes", testUpdateReads},
	{"names the keys it touched", testUpdateHashes},
	{"excludes others", testUpdateConcurrent},
	{"is seen whole or not at all", testUpdateSnapshot},
	{"ends with its caller", testUpdateCanceled},
	{"after closing is unavailable", testUpdateClosed},
}

func version(t testing.TB, s store.Store) int64 {
	t.Helper()
	version, err := s.ConfigVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func testUpdateVersion(t *testing.T, opener Opener) {
	s := opener.open(t)
	first := version(t, s)
	if first == 0 {
		t.Error("an empty store is at version 0, which means unknown")
	}
	change := putModels(t, s, &ktmsv1.ModelSpec{Id: "a"}, &ktmsv1.ModelSpec{Id: "b"})
	if change.Version != first+1 || version(t, s) != first+1 || config(t, s).Version != first+1 {
		t.Errorf("two writes in one update lead from version %d to %d, %d and %d", first, change.Version, version(t, s),
			config(t, s).Version)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func testUpdateClean(t *testing.T, opener Opener) {
	s := opener.open(t)
	putModels(t, s, &ktmsv1.ModelSpec{Id: "a"})
	before := version(t, s)
	change := update(t, s, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Config(ctx)
		return err
	})
	if change.Version != before || change.All || change.KeyHashes != nil || version(t, s) != before {
		t.Errorf("reading at version %d is the change %+v", before, change)
	}
}

func testUpdateFails(t *testing.T, opener Opener) {
	s := opener.open(t)
	before := version(t, s)
	mine := errors.New("mine")
	change, err := s.Update(t.Context(), func(ctx context.Context, tx store.Tx) error {
		if err := errors.Join(tx.InsertKey(ctx, newKey("key")), tx.PutModel(ctx, &ktmsv1.ModelSpec{Id: "a"})); err != nil {
			return err
		}
		return mine
	})
	if err != mine {
		t.Errorf("the error is %v, want the function's own, as it is", err)
	}
	if change.Version != 0 || change.All || change.KeyHashes != nil {
		t.Errorf("the change is %+v", change)
	}
	wantUnchanged(t, s, before)
}

func testUpdatePanics(t *testing.T, opener Opener) {
	s := opener.open(t)
	before := version(t, s)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = s.Update(t.Context(), func(ctx context.Context, tx store.Tx) error {
			_ = tx.InsertKey(ctx, newKey("key"))
			panic("on purpose")
		})
	}()
	wantUnchanged(t, s, before)
	insertKeys(t, s, newKey("key")) // others are not locked out
}

func wantUnchanged(t *testing.T, s store.Store, before int64) {
	t.Helper()
	if got := version(t, s); got != before {
		t.Errorf("the version is %d, want %d", got, before)
	}
	_, err := s.KeyByName(t.Context(), "key")
	wantErr(t, "the key", err, store.ErrNotFound)
	if models := config(t, s).Models; len(models) != 0 {
		t.Errorf("models are %v", models)
	}
}

func testUpdateReads(t *testing.T, opener Opener) {
	s := opener.open(t)
	key := newKey("key")
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		err := errors.Join(tx.InsertKey(ctx, key), tx.PutModel(ctx, &ktmsv1.ModelSpec{Id: "a"}))
		if err != nil {
			return err
		}
		got, err := tx.KeyByID(ctx, key.ID)
		if err != nil {
			return err
		}
		wantKey(t, got, key)
		config, err := tx.Config(ctx)
		if err == nil && len(config.Models) != 1 {
			t.Errorf("models are %v", config.Models)
		}
		return err
	})
}

func testUpdateHashes(t *testing.T, opener Opener) {
	s := opener.open(t)
	a, b := newKey("a"), newKey("b")
	change := insertKeys(t, s, a, b)
	got := make(map[[32]byte]bool)
	for _, hash := range change.KeyHashes {
		got[hash] = true
	}
	if change.All || len(change.KeyHashes) != 2 || !got[a.Hash] || !got[b.Hash] {
		t.Errorf("the change is %+v, want both keys", change)
	}
	change = update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.SetKeyPolicy(ctx, a.ID, &ktmsv1.APIKeyPolicy{}), tx.RevokeKey(ctx, a.ID, noon))
	})
	wantHashes(t, change, a.Hash) // once
}

// testUpdateConcurrent counts in the database: reading and writing in one Update must lose nothing, through two stores
// on one database.
func testUpdateConcurrent(t *testing.T, opener Opener) {
	const updates = 20
	open := opener.Fresh(t)
	stores := []store.Store{open(), open()}
	before := version(t, stores[0])
	putModels(t, stores[0], &ktmsv1.ModelSpec{Id: "counter"})

	var all sync.WaitGroup
	for i := range updates {
		all.Go(func() {
			_, err := stores[i%2].Update(t.Context(), func(ctx context.Context, tx store.Tx) error {
				config, err := tx.Config(ctx)
				if err != nil {
					return err
				}
				counter := config.Models[0]
				counter.Rpm++
				return tx.PutModel(ctx, counter)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range stores {
		if got := config(t, s); got.Version != before+1+updates || got.Models[0].GetRpm() != updates {
			t.Errorf("version rose from %d to %d and %d were counted, want %d more", before+1, got.Version,
				got.Models[0].GetRpm(), updates)
		}
	}
}

// testUpdateSnapshot writes one number into the first table that is read, the second and the last, and reads all of
// them, again and again.
func testUpdateSnapshot(t *testing.T, opener Opener) {
	const updates = 50
	open := opener.Fresh(t)
	writer, reader := open(), open()
	write := func(number int32) error {
		_, err := writer.Update(t.Context(), func(ctx context.Context, tx store.Tx) error {
			return errors.Join(
				tx.PutModel(ctx, &ktmsv1.ModelSpec{Id: "a", Rpm: number}),
				tx.ReplaceRules(ctx, []*ktmsv1.RuleSpec{{Name: fmt.Sprint(number)}}),
				tx.PutUserRateLimit(ctx, &ktmsv1.UserRateLimit{UserId: "u", ModelId: "a", Rpm: number}))
		})
		return err
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	start := config(t, reader).Version
	written := make(chan error, 1)
	go func() {
		for number := range int32(updates) {
			if err := write(number + 1); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	last := start
	for done := false; !done || last < start+updates; {
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		got := config(t, reader)
		model, rule := fmt.Sprint(got.Models[0].GetRpm()), got.Rules[0].GetName()
		limit := fmt.Sprint(got.UserRateLimits[0].GetRpm())
		if model != rule || model != limit || model != fmt.Sprint(got.Version-start) {
			t.Fatalf("at version %d: the model says %s, the rule %s, the limit %s", got.Version-start, model, rule, limit)
		}
		if got.Version < last {
			t.Fatalf("the version fell from %d to %d", last, got.Version)
		}
		last = got.Version
	}
}

func testUpdateCanceled(t *testing.T, opener Opener) {
	s := opener.open(t)
	before := version(t, s)

	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Update(ctx, func(ctx context.Context, tx store.Tx) error {
		if err := tx.InsertKey(ctx, newKey("key")); err != nil {
			return err
		}
		cancel()
		return tx.InsertKey(ctx, newKey("key2"))
	})
	wantErr(t, "canceled in the middle", err, context.Canceled)
	if errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the caller's own doing is called unavailable: %v", err)
	}
	wantUnchanged(t, s, before)

	for what, call := range map[string]func() error{
		"update": func() error {
			_, err := s.Update(ctx, func(context.Context, store.Tx) error { return nil })
			return err
		},
		"config":  func() error { _, err := s.Config(ctx); return err },
		"version": func() error { _, err := s.ConfigVersion(ctx); return err },
		"key":     func() error { _, err := s.KeyByHash(ctx, [32]byte{}); return err },
		"list":    func() error { _, err := s.ListKeys(ctx, "", 1, true); return err },
		"ping":    func() error { return s.Ping(ctx) },
	} {
		err := call()
		wantErr(t, what+" when canceled", err, context.Canceled)
		if errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s when canceled is called unavailable: %v", what, err)
		}
	}
	insertKeys(t, s, newKey("key")) // others are not locked out
}

func testUpdateClosed(t *testing.T, opener Opener) {
	s := opener.open(t)
	s.Close()
	ctx := t.Context()
	_, err := s.Update(ctx, func(context.Context, store.Tx) error { return nil })
	wantErr(t, "update", err, store.ErrUnavailable)
	_, err = s.Config(ctx)
	wantErr(t, "config", err, store.ErrUnavailable)
	_, err = s.KeyByHash(ctx, [32]byte{})
	wantErr(t, "key", err, store.ErrUnavailable)
	wantErr(t, "ping", s.Ping(ctx), store.ErrUnavailable)
	s.Close() // again does no harm
}
