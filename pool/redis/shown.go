package redis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/ai-process/ktms/pool"
)

// shownFields are what the fleet shows of a node, in the order in which shown reads them.
var shownFields = [...]string{
	"at", "registered", "counted", "opened", "drained", "generation", "spec", "report", "speeds", "token",
}

// shown is a node as the fleet shows it, and the texts that it was read from, so that only what has changed is read again.
type shown struct {
	texts [len(shownFields)]string
	node  pool.Node
	// heartbeat is in microseconds.
	heartbeat int64
	// kept: Redis has lost it.
	kept bool
}

// read takes in the fields of a node. It reports whether there is one.
func (s *shown) read(fields []rueidis.RedisMessage) (bool, error) {
	if len(fields) != len(shownFields) {
		return false, errReply
	}
	var texts [len(shownFields)]string
	for i := range fields {
		if fields[i].IsNil() {
			continue
		}
		text, err := fields[i].ToString()
		if err != nil {
			return false, err
		}
		texts[i] = text
	}
	if texts[0] == "" {
		return false, nil
	}
	former := s.texts
	s.texts, s.kept = texts, false
	if texts == former {
		return true, nil
	}
	if err := s.parse(former); err != nil {
		s.texts = [len(shownFields)]string{}
		return false, err
	}
	return true, nil
}

// parse makes a node of the texts. What it points to is made anew where it has changed, since others hold the former node.
func (s *shown) parse(former [len(shownFields)]string) error {
	const at, registered, counted, opened, drained, generation, spec, report, speeds, token = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	n, t := &s.node, &s.texts
	var err error
	if s.heartbeat, err = microsOf(t[at]); err != nil {
		return fmt.Errorf("read the heartbeat: %w", err)
	}
	n.HeartbeatAt = instant(s.heartbeat)
	n.HeardAt = n.HeartbeatAt
	since, err := microsOf(t[registered])
	if err != nil {
		return fmt.Errorf("read the registration: %w", err)
	}
	n.RegisteredAt = instant(since)
	if n.Counted, err = strconv.ParseInt(t[counted], 10, 64); err != nil {
		return fmt.Errorf("read what is counted: %w", err)
	}
	n.OpenedAt = time.Time{}
	if t[opened] != "" {
		when, err := microsOf(t[opened])
		if err != nil {
			return fmt.Errorf("read the circuit: %w", err)
		}
		n.OpenedAt = instant(when)
	}
	n.Drained, n.Generation = t[drained] == "1", t[generation]
	if t[spec] != former[spec] {
		n.NodeSpec = pool.NodeSpec{Token: n.Token}
		if err := json.Unmarshal([]byte(t[spec]), &n.NodeSpec); err != nil {
			return fmt.Errorf("read the spec: %w", err)
		}
	}
	if t[token] != former[token] {
		n.Token = []byte(t[token])
	}
	if t[token] == "" {
		n.Token = nil
	}
	if t[report] != former[report] {
		n.NodeReport = pool.NodeReport{}
		if err := json.Unmarshal([]byte(t[report]), &n.NodeReport); err != nil {
			return fmt.Errorf("read the report: %w", err)
		}
	}
	if t[speeds] != former[speeds] {
		if n.Speeds, err = readSpeeds(t[speeds]); err != nil {
			return fmt.Errorf("read the speeds: %w", err)
		}
	}
	return nil
}

// readSpeeds reads the two numbers of each model, which are words so that no digit is lost.
func readSpeeds(text string) (map[string]pool.Speed, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nothing was measured
	}
	var words map[string][2]string
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		return nil, err
	}
	speeds := make(map[string]pool.Speed, len(words))
	for model, pair := range words {
		ttft, err := strconv.ParseFloat(pair[0], 64)
		if err != nil {
			return nil, err
		}
		tps, err := strconv.ParseFloat(pair[1], 64)
		if err != nil {
			return nil, err
		}
		speeds[model] = pool.Speed{TTFT: ttft, TPS: tps}
	}
	return speeds, nil
}
