package expose

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// urlTimeout is how long the program may take to name its address.
	urlTimeout = time.Minute
	// firstPause is the pause before the program is started again, and doubles with each start that brings no lasting
	// tunnel: quick tunnels are free, and who opens one a second is locked out.
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// lasting is how long a tunnel must have lived to start over with the first pause.
	lasting = 10 * time.Minute
	// stopTimeout is how long the program may take to end.
	stopTimeout = 5 * time.Second
	// maxLine bounds a line that is looked at.
	maxLine = 16 << 10
)

// quickURL is the address in what the program prints. It also prints that of the service that gives the addresses out.
var quickURL = regexp.MustCompile(`https://([a-z0-9][a-z0-9-]*)\.trycloudflare\.com`)

const service = "api"

// tunnel runs the program, again and again.
type tunnel struct {
	program, target string
	log             *slog.Logger
	// moved is told each address, and "" when the tunnel is down.
	moved func(address string)

	// The times are fields so that tests need not wait for them; 0 is the constant's.
	urlTimeout, firstPause time.Duration
}

// run keeps a tunnel up until ctx ends.
func (t *tunnel) run(ctx context.Context) {
	if t.urlTimeout == 0 {
		t.urlTimeout = urlTimeout
	}
	if t.firstPause == 0 {
		t.firstPause = firstPause
	}
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
	late := time.AfterFunc(t.urlTimeout, func() {
		cancel(fmt.Errorf("%s named no address within %s", t.program, t.urlTimeout))
	})
	defer late.Stop()

	cmd := exec.CommandContext(ctx, t.program, "tunnel", "--no-autoupdate", "--url", t.target) //nolint:gosec // the operator chose it
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
	go func() { last <- t.read(output, late) }()
	err := cmd.Run()
	input.Close()
	words := <-last
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		err = fmt.Errorf("%s ended", t.program)
	}
	if words != "" {
		err = fmt.Errorf("%w (its last words: %s)", err, words)
	}
	return err
}

// read looks for addresses in what the program prints, and returns the last thing it said.
func (t *tunnel) read(output io.Reader, late *time.Timer) (last string) {
	current := ""
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := lines.ReadSlice('\n') // a longer line comes in pieces
		text := strings.TrimSpace(string(line))
		if text != "" {
			last = text
			t.log.Debug("cloudflared", "says", text)
		}
		for _, found := range quickURL.FindAllStringSubmatch(text, -1) {
			if found[1] != service && found[0] != current {
				current = found[0]
				late.Stop()
				t.log.Info("the tunnel is up", "address", current)
				t.moved(current)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return last
		}
	}
}
