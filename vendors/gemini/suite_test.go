package gemini

import (
	"net/http"
	"testing"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

func TestSuite(t *testing.T) {
	for i, model := range []string{"gemini-2.5-flash", "gemini-3.8-flash", "gemini-4-argon"} {
		t.Run(model, func(t *testing.T) {
			vendortest.Run(t, vendortest.Subject{
				New: func(carrier http.RoundTripper) vendors.Vendor {
					return New(Options{Transport: carrier, Version: "test"})
				},
				Target: func(baseURL string) vendors.Target {
					return vendors.Target{Vendor: vendors.Google, Model: model, BaseURL: baseURL}
				},
				ModelOnly: i > 0,
				Script:    vendortest.Gemini(),
				Headers:   []string{"X-Goog-Api-Key"},
			})
		})
	}
}
