package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// poolAnswer is how a call ended.
type poolAnswer struct {
	status int
	// text is what the model said: the name of the engine, or cloudName.
	text string
	// whole: the answer came to its end.
	whole bool
	// broken are the error events of a stream.
	broken []string
	err    error
	took   time.Duration
}

// served reports whether a call got its answer, the whole of it, from somebody.
func (a poolAnswer) served() bool {
	return a.err == nil && a.status == http.StatusOK && a.whole && len(a.broken) == 0 && a.text != ""
}

// call makes one call that goes along the rule.
func (w *poolWorld) call(g *process, text string, stream bool) (out poolAnswer) {
	began := time.Now()
	defer func() { out.took = time.Since(began) }()
	body := fmt.Sprintf(`{"model":"auto","stream":%t,"max_tokens":100,"messages":[{"role":"user","content":%q}]}`, stream, text)
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, g.HTTP+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return poolAnswer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return poolAnswer{err: err}
	}
	defer resp.Body.Close()
	out.status = resp.StatusCode
	all, err := io.ReadAll(resp.Body)
	out.err = err
	for line := range strings.Lines(string(all)) {
		out.take(strings.TrimSpace(strings.TrimPrefix(line, "data: ")), stream)
	}
	return out
}

// take reads the answer in one piece, or one line of a stream.
func (a *poolAnswer) take(line string, stream bool) {
	type said struct{ Content string }
	var wire struct {
		Choices []struct {
			Message, Delta said
			FinishReason   string `json:"finish_reason"`
		}
		Error json.RawMessage
	}
	switch {
	case line == "":
		return
	case line == "[DONE]":
		a.whole = true
		return
	case json.Unmarshal([]byte(line), &wire) != nil:
		a.err = fmt.Errorf("the answer has a line that is none: %q", line)
	case len(wire.Error) > 0:
		a.broken = append(a.broken, line)
	case len(wire.Choices) == 1:
		a.text += wire.Choices[0].Message.Content + wire.Choices[0].Delta.Content
		a.whole = a.whole || !stream && wire.Choices[0].FinishReason == "stop"
	}
}

// crowd makes so many calls at once, in turns by all these gateways, every other one of each streamed.
func (w *poolWorld) crowd(text string, n int, gateways ...*process) (wait func() []poolAnswer) {
	return w.crowdOf(text, n, func(i int) bool { return i/len(gateways)%2 == 1 }, gateways...)
}

func (w *poolWorld) crowdOf(text string, n int, streams func(int) bool, gateways ...*process) (wait func() []poolAnswer) {
	all := make([]poolAnswer, n)
	var callers sync.WaitGroup
	for i := range all {
		callers.Go(func() {
			all[i] = w.call(gateways[i%len(gateways)], fmt.Sprintf("%s, %d", text, i), streams(i))
		})
	}
	return func() []poolAnswer {
		callers.Wait()
		return all
	}
}

// load makes calls one after another on so many lines until it is told to stop, and returns all answers.
func (w *poolWorld) load(lines int, gateways ...*process) (stop func() []poolAnswer) {
	ending := make(chan struct{})
	var mu sync.Mutex
	var all []poolAnswer
	var callers sync.WaitGroup
	for i := range lines {
		callers.Go(func() {
			for n := i; ; n++ {
				select {
				case <-ending:
					return
				default:
				}
				got := w.call(gateways[n%len(gateways)], fmt.Sprintf("load %d", n), n/len(gateways)%2 == 1)
				mu.Lock()
				all = append(all, got)
				mu.Unlock()
			}
		})
	}
	end := sync.OnceFunc(func() { close(ending) })
	w.Cleanup(end)
	return func() []poolAnswer {
		end()
		callers.Wait()
		return all
	}
}

// allServed holds that every call was, and counts by whom.
func (w *poolWorld) allServed(answers []poolAnswer) map[string]int {
	w.Helper()
	by := map[string]int{}
	unserved := 0
	for _, a := range answers {
		by[a.text]++
		if !a.served() {
			if unserved++; unserved <= 5 {
				w.Errorf("a call ended with %+v", a)
			}
		}
	}
	if unserved > 5 {
		w.Errorf("and %d more of %d", unserved-5, len(answers))
	}
	if len(answers) == 0 {
		w.Error("nobody called")
	}
	return by
}
