package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// readTimeout bounds one question to the engine. It answers from memory, so longer means that it hangs; and two
	// questions in a row still fit between two heartbeats.
	readTimeout = 3 * time.Second
	// loadTimeout bounds the loading of a model: a large one from a slow disk takes minutes.
	loadTimeout = 15 * time.Minute
	// idleConns is how many connections wait for the next heartbeat's questions, and idleTimeout for how long.
	idleConns   = 4
	idleTimeout = time.Minute
	// maxBody bounds an answer. A metrics page with many histograms has some hundred KiB.
	maxBody = 8 << 20
	// maxErrorText bounds what of an engine's error goes into ours.
	maxErrorText = 300
)

// StatusError is an answer that is no success.
type StatusError struct {
	Path   string
	Status int
	// Text is what the engine said, shortened.
	Text string
}

func (e *StatusError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s answered with status %d", e.Path, e.Status)
	}
	return fmt.Sprintf("%s answered with status %d: %s", e.Path, e.Status, e.Text)
}

// NotReadyError says that an engine runs but cannot serve: it still loads its model, or has lost it.
type NotReadyError struct {
	// Text is what the engine said.
	Text string
}

func (e *NotReadyError) Error() string { return "it is not ready: " + e.Text }

// client asks one engine.
type client struct {
	http  *http.Client
	base  string
	token string
}

// get reads a page.
func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	return c.ask(ctx, readTimeout, http.MethodGet, path, nil)
}

// whileReady lists models while the engine says that it is well: some list what they cannot serve yet, or not any more.
func (c *client) whileReady(ctx context.Context, list func(context.Context) ([]Model, error)) ([]Model, error) {
	var health error
	var asking sync.WaitGroup
	asking.Go(func() { _, health = c.get(ctx, "/health") })
	models, err := list(ctx)
	asking.Wait()
	// Anything but this one status says nothing: not every server of these engines has the page.
	if answer, found := errors.AsType[*StatusError](health); found && answer.Status == http.StatusServiceUnavailable {
		return nil, &NotReadyError{cmp.Or(answer.Text, answer.Error())}
	}
	return models, err
}

// getJSON reads a JSON page into out.
func (c *client) getJSON(ctx context.Context, path string, out any) error {
	page, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	return decode(path, page, out)
}

// post sends in and reads the answer into out, which may be nil.
func (c *client) post(ctx context.Context, timeout time.Duration, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	page, err := c.ask(ctx, timeout, http.MethodPost, path, body)
	if err != nil || out == nil {
		return err
	}
	return decode(path, page, out)
}

func decode(path string, page []byte, out any) error {
	if err := json.Unmarshal(page, out); err != nil {
		return fmt.Errorf("%s answered with something else than the JSON of this engine (is --engine right?): %w", path, err)
	}
	return nil
}

func (c *client) ask(ctx context.Context, timeout time.Duration, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		return nil, &StatusError{path, resp.StatusCode, "it sends callers on to " + to + ", so give that address if it is the engine's"}
	}
	if resp.StatusCode/100 != 2 {
		return nil, &StatusError{path, resp.StatusCode, errorText(page)}
	}
	if len(page) > maxBody {
		return nil, fmt.Errorf("%s answered with more than %d bytes", path, maxBody)
	}
	return page, nil
}

// errorText finds the sentence in the error bodies of the engines.
func errorText(page []byte) string {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	text := string(page)
	if json.Unmarshal(page, &body) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var plain string
		switch {
		case json.Unmarshal(body.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case json.Unmarshal(body.Error, &plain) == nil && plain != "":
			text = plain
		case body.Message != "":
			text = body.Message
		}
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// hasStatus reports whether an error is an answer with one of the statuses.
func hasStatus(err error, statuses ...int) bool {
	var answer *StatusError
	return errors.As(err, &answer) && slices.Contains(statuses, answer.Status)
}

// IsMissing reports whether an engine answered that it does not have the model.
func IsMissing(err error) bool { return hasStatus(err, http.StatusNotFound) }
