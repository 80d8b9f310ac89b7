package openai

import (
	"net/http"
	"strings"

	"github.com/ai-process/ktms/server/gateway"
)

const (
	prefix       = "X-Ktms-" // as net/http spells X-KTMS-
	legacyPrefix = "X-Llm-Proxy-"

	// sunset is when the old names go, as every answer that carries them has announced.
	sunset  = "Mon, 01 Mar 2027 00:00:00 GMT"
	warning = `299 - "X-LLM-Proxy-* headers are deprecated, use X-KTMS-*"`

	headerPlacement = "X-KTMS-Placement"
	headerStrict    = "X-KTMS-Strict"
)

// betaHeaders are the only headers of a caller that a vendor sees, as ktms.v1 spells them.
var betaHeaders = []string{"anthropic-beta", "openai-beta"}

// legacy accepts the old names of request headers; where both are sent, the new one counts.
func (h *handler) legacy(next http.Handler) http.Handler {
	if !h.LegacyHeaders {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			suffix, old := strings.CutPrefix(name, legacyPrefix)
			if !old {
				continue
			}
			if known := prefix + suffix; known == http.CanonicalHeaderKey(headerPlacement) || known == http.CanonicalHeaderKey(headerStrict) {
				h.LegacySeen("X-LLM-Proxy-" + suffix) // a fixed set, since it becomes a label
				if r.Header.Get(known) == "" {
					r.Header[known] = values
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// writeHead puts onto the response how the answer came about.
func (h *handler) writeHead(header http.Header, head *gateway.Head) {
	for name, value := range head.Headers() {
		header.Set(name, value)
		if suffix, ours := strings.CutPrefix(name, "X-KTMS-"); ours && h.LegacyHeaders {
			header.Set("X-LLM-Proxy-"+suffix, value)
		}
	}
	if h.LegacyHeaders {
		header.Set("Deprecation", "true")
		header.Set("Sunset", sunset)
		header.Set("Warning", warning)
	}
}
