package expose

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// urlTimeout is how long the program may take to name its address.
	urlTimeout = time.Minute
	// connectTimeout is how long it may take from there to its first connection. Where UDP is blocked it tries that for more
	// than a minute before it falls back to TCP.
	connectTimeout = 4 * time.Minute
	// assumeAfter is how long after the address a connection is assumed if the program speaks neither of one nor of a
	// failure: its words may change. The first failure shows after 5 s.
	assumeAfter = 15 * time.Second
	// firstPause is the pause before the program is started again, and doubles with each start that brings no lasting
	// tunnel: quick tunnels are free, and who opens one a second is locked out.
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// lasting is how long a tunnel must have lived to start over with the first pause.
	lasting = 10 * time.Minute
	// stopTimeout is how long the program may take to end.
	stopTimeout = 5 * time.Second
)

// tunnel runs the program, again and again.
type tunnel struct {
	program, target string
	// secret is kept out of the log: at its own debug level the program prints the requests that it passes on.
	secret string
	log    *slog.Logger
	// moved is told each address, and "" when the tunnel is down.
	moved func(address string)

	// The times are fields so that tests need not wait for them; 0 is the constant's.
	urlTimeout, connectTimeout, assumeAfter, firstPause time.Duration
}

// run keeps a tunnel up until ctx ends.
func (t *tunnel) run(ctx context.Context) {
	t.urlTimeout = cmp.Or(t.urlTimeout, urlTimeout)
	t.connectTimeout = cmp.Or(t.connectTimeout, connectTimeout)
	t.assumeAfter = cmp.Or(t.assumeAfter, assumeAfter)
	t.firstPause = cmp.Or(t.firstPause, firstPause)
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		err := t.once(ctx)
		t.moved("")
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= lasting {
			pause = 0
		}
		pause = min(max(2*pause, t.firstPause), longestPause)
		t.log.Warn("the tunnel is down, starting it again", "error", err.Error(), "in", pause.String())
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// once runs the program until it ends, and says why it did.
func (t *tunnel) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := newProgress(t, cancel)
	defer p.end()

	// Without a configuration of its own: one on this machine is for another tunnel, and the program then opens no quick one.
	//nolint:gosec // the operator chose the program
	cmd := exec.CommandContext(ctx, t.program, "tunnel", "--config", os.DevNull, "--no-autoupdate", "--url", t.target)
	defer bind(cmd)()
	cmd.Cancel = func() error {
		if runtime.GOOS == "windows" {
			return cmd.Process.Kill()
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = stopTimeout
	output, input := io.Pipe()
	cmd.Stdout, cmd.Stderr = input, input
	last := make(chan string, 1)
	go func() { last <- p.read(output) }()
	err := cmd.Run()
	input.Close()
	words := <-last
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if cmd.Process == nil && err != nil {
		err = fmt.Errorf("%s does not run (%w): install it, or name it with --cloudflared-path", t.program, err)
	}
	if err == nil {
		err = fmt.Errorf("%s ended", t.program)
	}
	if words = t.redact(words); words != "" {
		err = fmt.Errorf("%w (its last words: %s)", err, words)
	}
	return err
}
