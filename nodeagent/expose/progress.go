package expose

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// maxLine bounds a line that is looked at.
const maxLine = 16 << 10

var (
	// quickURL is the address in what the program prints. It also prints that of the service that gives the addresses out.
	quickURL = regexp.MustCompile(`https://([a-z0-9][a-z0-9-]*)\.trycloudflare\.com(?:[^\w-]|$)`)
	// connected is in the words of today's releases, and of those before summer 2022.
	connected = regexp.MustCompile(`(?i)registered tunnel connection|connection [0-9a-f-]{36} registered`)
	// failing says that a connection did not come up.
	failing = regexp.MustCompile(`(?i)failed to (dial|create|serve)|unable to establish|retrying connection`)
)

const service = "api"

// progress is how far one run of the program has come: it names its address before anything can be reached there, and
// goes on trying for ever where its port is blocked.
type progress struct {
	t *tunnel
	// cancel ends the run.
	cancel context.CancelCauseFunc
	// late ends a run that does not come up, and assume takes it for connected.
	late, assume *time.Timer

	mu sync.Mutex
	// named is the address that the program named last, and told the one that the tunnel's owner knows.
	named, told     string
	connected, fail bool
	ended           bool
}

func newProgress(t *tunnel, cancel context.CancelCauseFunc) *progress {
	p := &progress{t: t, cancel: cancel}
	p.late = time.AfterFunc(t.urlTimeout, p.giveUp)
	return p
}

// end stops what still waits, so that a run that is over announces nothing.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.late.Stop()
	if p.assume != nil {
		p.assume.Stop()
	}
}

func (p *progress) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.told != "" || p.ended:
	case p.named == "":
		p.cancel(fmt.Errorf("%s named no address within %s", p.t.program, p.t.urlTimeout))
	default:
		p.cancel(fmt.Errorf("%s has an address but did not connect within %s: outbound port 7844 may be blocked, ktms-node doctor tells",
			p.t.program, p.t.connectTimeout))
	}
}

// read looks at what the program prints, and returns the last thing it said.
func (p *progress) read(output io.Reader) (last string) {
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := lines.ReadSlice('\n') // a longer line comes in pieces
		if text := strings.TrimSpace(string(line)); text != "" {
			last = text
			p.t.log.Debug("cloudflared", "says", p.t.redact(text))
			p.take(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return last
		}
	}
}

// take learns from one line.
func (p *progress) take(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, found := range quickURL.FindAllStringSubmatch(text, -1) {
		if address := "https://" + found[1] + ".trycloudflare.com"; found[1] != service && address != p.named {
			p.name(address)
		}
	}
	switch {
	case connected.MatchString(text):
		p.connected = true
	case failing.MatchString(text):
		p.fail = true
	}
	p.announce()
}

func (p *progress) name(address string) {
	if p.named == "" && !p.ended {
		p.late.Reset(p.t.connectTimeout)
		p.assume = time.AfterFunc(p.t.assumeAfter, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.connected = p.connected || !p.fail
			p.announce()
		})
	}
	p.named = address
}

// announce tells an address as soon as something can be reached there.
func (p *progress) announce() {
	if !p.connected || p.named == p.told || p.ended {
		return
	}
	p.told = p.named
	p.late.Stop()
	p.t.log.Info("the tunnel is up", "address", p.told)
	p.t.moved(p.told)
}

// redact takes the access key out of a line.
func (t *tunnel) redact(text string) string {
	if t.secret == "" {
		return text
	}
	return strings.ReplaceAll(text, t.secret, "[access key]")
}
