package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ai-process/ktms/store"
)

const (
	// ProofInterval is how often the feed proves that it still hears everything. What it delivered may be relied on for
	// a second after a proof was sent; a quarter of that leaves room for a proof that is late and for one that is lost.
	ProofInterval = 250 * time.Millisecond
	// proofTimeout bounds sending one proof. Later it would prove nothing of use.
	proofTimeout = time.Second
	// deafAfter is how long a proof that the server took may stay unheard until the connection is given up: it can look
	// alive for long after the server, or a machine between, has forgotten it.
	deafAfter = 2 * time.Second
	// farewell bounds saying goodbye to a server that may not answer.
	farewell = time.Second

	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// feed hears changes over a connection of its own.
//
// A connection that is silent may be idle or dead, and a dead one would let revoked keys live. So the feed sends itself
// proofs, through the pool: Postgres hands every listener its notifications in the order of their commits, so a proof
// that is heard shows that whatever was committed before it was sent has been heard, too.
type feed struct {
	pool    *pgxpool.Pool
	timeout time.Duration
	log     *slog.Logger
	// proofChannel is this feed's alone, so that replicas do not wake each other four times a second.
	proofChannel string

	seen atomic.Pointer[time.Time]
	// turn holds a token while Run runs: two listeners at once would vouch for each other.
	turn   chan struct{}
	closed context.Context
	end    context.CancelFunc
}

func newFeed(pool *pgxpool.Pool, timeout time.Duration, log *slog.Logger) *feed {
	f := &feed{
		pool:         pool,
		timeout:      timeout,
		log:          log,
		proofChannel: "ktms_proof_" + rand.Text(),
		turn:         make(chan struct{}, 1),
	}
	f.closed, f.end = context.WithCancel(context.Background())
	return f
}

// close ends Run and waits for it.
func (f *feed) close() {
	f.end()
	f.turn <- struct{}{}
	<-f.turn
}

// SeenUpTo is when the last proof that was heard was sent.
func (f *feed) SeenUpTo() time.Time {
	if seen := f.seen.Load(); seen != nil {
		return *seen
	}
	return time.Time{}
}

// Run delivers until ctx ends or the store is closed.
func (f *feed) Run(ctx context.Context, deliver func(store.Change)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.closed, cancel)()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return
	}

	backoff := minBackoff
	level := slog.LevelWarn
	for {
		heard, err := f.listen(ctx, deliver)
		if ctx.Err() != nil {
			return
		}
		if heard {
			backoff, level = minBackoff, slog.LevelWarn
		}
		f.log.Log(ctx, level, "configuration changes are not heard", "error", err, "retry_in", backoff)
		level = slog.LevelDebug // one warning per outage
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// listen connects once and delivers until the connection is lost. It reports whether any proof was heard.
func (f *feed) listen(ctx context.Context, deliver func(store.Change)) (heard bool, err error) {
	conn, err := f.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = conn.Close(bound)
	}()

	// From here on nothing committed is missed, and only from here on do proofs count.
	proofs := newProofs()
	sending, stop := context.WithCancel(ctx)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		f.prove(sending, proofs)
	}()
	defer func() {
		stop()
		<-sent
	}()
	deliver(store.Change{All: true})

	for {
		notification, err := waitFor(ctx, conn, ProofInterval)
		switch {
		case err != nil:
			return heard, err
		case notification == nil:
			if age := proofs.oldest(); age > deafAfter {
				return heard, fmt.Errorf("a notification stayed unheard for %s", age.Round(time.Millisecond))
			}
		case notification.Channel == changeChannel:
			deliver(decodeChange(notification.Payload))
		case notification.Channel == f.proofChannel:
			if sentAt, ours := proofs.receive(notification.Payload); ours {
				if !heard {
					f.log.InfoContext(ctx, "configuration changes are heard")
				}
				heard = true
				f.seen.Store(&sentAt)
			}
		}
	}
}

// connect opens the listening connection, beside the pool so that busy queries cannot starve it.
func (f *feed) connect(ctx context.Context) (*pgx.Conn, error) {
	bound, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	config := f.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] += " feed"
	conn, err := pgx.ConnectConfig(bound, config)
	if err != nil {
		return nil, err
	}
	listen := "LISTEN " + changeChannel + "; LISTEN " + pgx.Identifier{f.proofChannel}.Sanitize()
	if _, err := conn.Exec(bound, listen); err != nil {
		_ = conn.Close(bound)
		return nil, err
	}
	return conn, nil
}

// waitFor returns nil without an error when nothing came in time; the connection stays usable.
func waitFor(ctx context.Context, conn *pgx.Conn, patience time.Duration) (*pgconn.Notification, error) {
	bound, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	notification, err := conn.WaitForNotification(bound)
	if err != nil && bound.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return nil, nil
	}
	return notification, err
}

// prove sends proofs until ctx ends. One that cannot be sent is left out: the pool may be busy, or the server gone,
// and either way SeenUpTo must stand still.
func (f *feed) prove(ctx context.Context, proofs *proofs) {
	ticks := time.NewTicker(ProofInterval)
	defer ticks.Stop()
	for {
		if sequence, open := proofs.send(time.Now()); open {
			bound, cancel := context.WithTimeout(ctx, proofTimeout)
			_, err := f.pool.Exec(bound, notify, f.proofChannel, sequence)
			cancel()
			if err != nil {
				proofs.withdraw(sequence)
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
