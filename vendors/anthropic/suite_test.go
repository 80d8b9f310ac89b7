package anthropic

import (
	"net/http"
	"testing"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

func TestSuite(t *testing.T) {
	for i, model := range []string{ // one of each generation
		"claude-opus-5-5", "claude-opus-5", "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001", "claude-opus-4-20250514", "claude-3-5-haiku-latest",
	} {
		t.Run(model, func(t *testing.T) {
			vendortest.Run(t, vendortest.Subject{
				New: func(carrier http.RoundTripper) vendors.Vendor {
					return New(Options{Transport: carrier, Version: "test"})
				},
				Target: func(baseURL string) vendors.Target {
					return vendors.Target{Vendor: vendors.Anthropic, Model: model, BaseURL: baseURL}
				},
				ModelOnly: i > 0,
				Script:    vendortest.Anthropic(),
				Headers:   []string{"X-Api-Key", "Anthropic-Version"},
			})
		})
	}
}
