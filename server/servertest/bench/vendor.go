package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// streamTokens is the length of a scripted stream.
const streamTokens = 20

// lifetime ends a vendor whose bench died.
const lifetime = 6 * time.Minute

const unaryAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-6-luna","choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"A short summary of the paragraph."},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":400,"completion_tokens":8,"total_tokens":408}}`

// serveVendor answers at once, as fast as net/http can.
func serveVendor() {
	time.AfterFunc(lifetime, func() { os.Exit(0) })
	server := &http.Server{Addr: os.Getenv("BENCH_VENDOR_ADDR"), Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
}

func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(body[:min(len(body), 200)])+string(body[max(0, len(body)-200):]), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, unaryAnswer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	for i := range streamTokens {
		_, _ = fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-6-luna","choices":[{"index":0,"delta":{"role":"assistant","content":"t%d "},"finish_reason":null}]}`+"\n\n", i)
		_ = flush()
	}
	_, _ = io.WriteString(w, `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+
		`data: {"id":"x","choices":[],"usage":{"prompt_tokens":400,"completion_tokens":20,"total_tokens":420}}`+"\n\ndata: [DONE]\n\n")
}
