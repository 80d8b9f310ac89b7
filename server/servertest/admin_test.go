package servertest_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protojson"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/seal"
)

// wantCode fails the test unless err has the code and, where given, holds the text.
func wantCode(t *testing.T, what string, err error, code connect.Code, text ...string) {
	t.Helper()
	if got := connect.CodeOf(err); err == nil || got != code {
		t.Errorf("%s: got %v, want %v", what, err, code)
		return
	}
	for _, part := range text {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", what, err, part)
		}
	}
}

// paths returns the fields that an invalid request is told about.
func paths(t *testing.T, err error) (out []string) {
	t.Helper()
	var failed *connect.Error
	if !errors.As(err, &failed) {
		t.Fatalf("not an RPC error: %v", err)
	}
	for _, detail := range failed.Details() {
		message, err := connectproto.UnmarshalErrorDetail(detail)
		if err != nil {
			t.Fatal(err)
		}
		if bad, ok := message.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				out = append(out, v.GetField())
			}
		}
	}
	return out
}

func TestAdmin_Keys(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	var plain string
	for i := range 5 {
		minted, err := admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: fmt.Sprintf("key-%d", i), Scopes: []string{"generate"}})
		if err != nil {
			t.Fatal(err)
		}
		plain = minted.GetPlainKey()
		if !strings.HasPrefix(plain, "ktms_") || len(plain) != 53 || !strings.HasPrefix(plain, minted.GetApiKey().GetPrefix()) {
			t.Errorf("an odd key with the prefix %q", minted.GetApiKey().GetPrefix())
		}
	}
	_, err := admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "key-0", Scopes: []string{"generate"}})
	wantCode(t, "a name twice", err, connect.CodeAlreadyExists, "key-0")
	_, err = admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "no spaces", Scopes: []string{"root"}})
	wantCode(t, "two mistakes", err, connect.CodeInvalidArgument)
	if got := paths(t, err); !slices.Equal(got, []string{"name", "scopes[0]"}) {
		t.Errorf("paths %v, want both mistakes", got)
	}

	var names []string
	for token, pages := "", 0; ; pages++ {
		page, err := admin.ListAPIKeys(ctx, &ktmsv1.ListAPIKeysRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range page.GetApiKeys() {
			names = append(names, key.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
		if pages > 5 {
			t.Fatal("the pages do not end")
		}
	}
	if want := []string{"key-0", "key-1", "key-2", "key-3", "key-4"}; !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v", names, want)
	}

	revoked, err := admin.RevokeAPIKey(ctx, &ktmsv1.RevokeAPIKeyRequest{Name: "key-4"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := admin.RevokeAPIKey(ctx, &ktmsv1.RevokeAPIKeyRequest{Id: revoked.GetApiKey().GetId()})
	if err != nil || !again.GetApiKey().GetRevokedAt().AsTime().Equal(revoked.GetApiKey().GetRevokedAt().AsTime()) ||
		again.GetConfigVersion() != revoked.GetConfigVersion() {
		t.Errorf("revoking twice must change nothing: %v, %v", again, err)
	}
	_, err = ktmsv1connect.NewGatewayServiceClient(s.Client(t, plain)).ListModels(ctx, &ktmsv1.ListModelsRequest{})
	wantCode(t, "a revoked key", err, connect.CodeUnauthenticated)
	_, err = admin.RevokeAPIKey(ctx, &ktmsv1.RevokeAPIKeyRequest{Name: "nobody"})
	wantCode(t, "an unknown key", err, connect.CodeNotFound, "nobody")
	_, err = admin.SetVendorKey(ctx, &ktmsv1.SetVendorKeyRequest{ApiKeyName: "key-4", Vendor: "openai", PlainKey: "x"})
	wantCode(t, "a credential for a revoked key", err, connect.CodeFailedPrecondition)
	_, err = admin.ListAPIKeys(ctx, &ktmsv1.ListAPIKeysRequest{PageToken: "%%"})
	wantCode(t, "a made-up token", err, connect.CodeInvalidArgument)
}

func TestAdmin_AnInvalidConfigurationNeverBecomesActive(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", "http://127.0.0.1:1"), servertest.Model("n", "http://127.0.0.1:1")}})
	before, err := admin.GetConfig(ctx, &ktmsv1.GetConfigRequest{})
	if err != nil {
		t.Fatal(err)
	}

	_, err = admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{
		{Name: "a", Priority: 1, Use: []string{"m", "gone"}, Enabled: true},
		{Name: "b", Priority: 9, Use: []string{"lost"}, Enabled: true},
		{Name: "a", Priority: 9, Use: []string{"m"}, Weights: []int32{1, 2}, Enabled: true},
	}})
	wantCode(t, "five mistakes", err, connect.CodeInvalidArgument, "gone", "lost")
	for _, want := range []string{"rules[0].use[1]", "rules[1].use[0]", "rules[2].name", "rules[2].priority", "rules[2].weights"} {
		if got := paths(t, err); !slices.Contains(got, want) {
			t.Errorf("%s is not among the mistakes %v", want, got)
		}
	}
	_, err = admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{
		{Name: "a", Priority: 1, Effort: ktmsv1.Effort_EFFORT_LOW, Use: []string{"m"}, Enabled: true}}})
	wantCode(t, "no catch-all", err, connect.CodeInvalidArgument, "EFFORT_MEDIUM", "EFFORT_HIGH")
	_, err = admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{})
	wantCode(t, "no rules at all", err, connect.CodeInvalidArgument, "rules")
	_, err = admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{{Name: "off", Priority: 1, Use: []string{"m"}}}})
	wantCode(t, "no enabled rule", err, connect.CodeInvalidArgument, "EFFORT_LOW")
	for _, misspelt := range []string{`{"rule":[{"name":"a","priority":1,"use":["m"],"enabled":true}]}`,
		`{"rules":[{"name":"a","priority":1,"use":["m"],"enabled":true},{"name":"b","priority":2,"use":["n"],"attribute":{"x":"y"},"enabled":true}]}`} {
		if code, _, body := request(t, http.MethodPost, s.GRPC+"/ktms.v1.AdminService/ReplaceRules", servertest.AdminKey, misspelt); code != 400 {
			t.Errorf("a misspelt member: %d %s", code, body)
		}
	}
	_, err = admin.DeleteModel(ctx, &ktmsv1.DeleteModelRequest{Id: "m"})
	wantCode(t, "a model in use", err, connect.CodeInvalidArgument, `"m"`)
	_, err = admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: &ktmsv1.ModelSpec{Id: "az", Vendor: "azure", Enabled: true}})
	wantCode(t, "azure without an endpoint", err, connect.CodeInvalidArgument, "endpoint")
	_, err = admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: &ktmsv1.ModelSpec{Id: "auto", Vendor: "openai", Enabled: true}})
	wantCode(t, "a reserved id", err, connect.CodeInvalidArgument, "auto")

	after, err := admin.GetConfig(ctx, &ktmsv1.GetConfigRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if before.String() != after.String() {
		t.Errorf("refused changes left a trace:\n%v\n%v", before, after)
	}
	if strings.Contains(after.String(), servertest.VendorKey) || len(after.GetVendorKeys()) != 1 || len(after.GetVendorKeys()[0].GetFingerprint()) != 16 {
		t.Errorf("GetConfig must show the fingerprint and not the key: %v", after.GetVendorKeys())
	}
}

func TestAdmin_PoliciesAndTenants(t *testing.T) {
	upstream := scripted(t, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	s.Configure(t, servertest.Setup{Key: "other", Models: []*ktmsv1.ModelSpec{servertest.Model("m", upstream), servertest.Model("n", upstream)}})

	org, err := admin.CreateOrganization(ctx, &ktmsv1.CreateOrganizationRequest{Name: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	orgID := org.GetOrganization().GetId()
	_, err = admin.CreateOrganization(ctx, &ktmsv1.CreateOrganizationRequest{Name: "acme"})
	wantCode(t, "an organization twice", err, connect.CodeAlreadyExists)
	made, err := admin.CreateTeam(ctx, &ktmsv1.CreateTeamRequest{OrgId: orgID, Name: "search", AllowedModels: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	teamID := made.GetTeam().GetId()
	_, err = admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "spy", Scopes: []string{"admin:read"}, TeamId: teamID})
	wantCode(t, "a reader within a team", err, connect.CodeInvalidArgument, "admin:read")
	minted, err := admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "bot", Scopes: []string{"generate"}, OrgId: orgID, TeamId: teamID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.SetVendorKey(ctx, &ktmsv1.SetVendorKeyRequest{ApiKeyName: "bot", Vendor: "openai", PlainKey: servertest.VendorKey}); err != nil {
		t.Fatal(err)
	}
	bot := ktmsv1connect.NewGatewayServiceClient(s.Client(t, minted.GetPlainKey()))
	resolved := func(override string) (string, error) {
		req := &ktmsv1.GenerateTextRequest{Effort: ktmsv1.Effort_EFFORT_LOW, ModelOverride: override, Messages: lowRequest.GetMessages()}
		r, err := bot.GenerateText(ctx, req)
		return r.GetResolvedModel(), err
	}
	if got, err := resolved(""); got != "n" || err != nil {
		t.Errorf("the team's list must filter the chain: got %q, %v", got, err)
	}
	_, err = resolved("m")
	wantCode(t, "an override outside the team's list", err, connect.CodePermissionDenied, `model "m" not allowed for team`)
	list, err := bot.ListModels(ctx, &ktmsv1.ListModelsRequest{})
	if err != nil || len(list.GetModels()) != 1 || list.GetModels()[0].GetId() != "n" {
		t.Errorf("ListModels: %v, %v", list, err)
	}
	if _, err := admin.SetAPIKeyPolicy(ctx, &ktmsv1.SetAPIKeyPolicyRequest{Name: "bot", Policy: &ktmsv1.APIKeyPolicy{AllowedModels: []string{"m"}}}); err != nil {
		t.Fatal(err)
	}
	_, err = resolved("")
	wantCode(t, "two lists that share no model", err, connect.CodePermissionDenied, "no models in chain allowed")
	if _, err := admin.UpdateTeam(ctx, &ktmsv1.UpdateTeamRequest{Id: teamID, Name: "search"}); err != nil {
		t.Fatal(err)
	}
	if got, err := resolved(""); got != "m" || err != nil {
		t.Errorf("an omitted list lifts the team's restriction: got %q, %v", got, err)
	}

	rules := []*ktmsv1.RuleSpec{{Name: "all", Priority: 1, Use: []string{"m"}, Enabled: true},
		{Name: "team", Priority: 2, TeamId: teamID, Use: []string{"n", "m"}, Enabled: true}}
	if _, err := admin.SetAPIKeyPolicy(ctx, &ktmsv1.SetAPIKeyPolicyRequest{Name: "bot"}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{Rules: rules}); err != nil {
		t.Fatal(err)
	}
	if got, err := resolved(""); got != "n" || err != nil {
		t.Errorf("a rule of the team: got %q, %v", got, err)
	}
	explained, err := admin.ExplainRoute(ctx, &ktmsv1.ExplainRouteRequest{ApiKeyName: "bot", Effort: ktmsv1.Effort_EFFORT_LOW})
	if err != nil || explained.GetMatchedRule() != "team" || len(explained.GetCandidates()) != 2 || !explained.GetCandidates()[0].GetKept() {
		t.Errorf("ExplainRoute: %v, %v", explained, err)
	}

	_, err = admin.DeleteTeam(ctx, &ktmsv1.DeleteTeamRequest{Id: teamID})
	wantCode(t, "a team with an active key", err, connect.CodeFailedPrecondition, "revoke")
	_, err = admin.DeleteOrganization(ctx, &ktmsv1.DeleteOrganizationRequest{Id: orgID})
	wantCode(t, "an organization with an active key", err, connect.CodeFailedPrecondition)
	if _, err := admin.RevokeAPIKey(ctx, &ktmsv1.RevokeAPIKeyRequest{Name: "bot"}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteOrganization(ctx, &ktmsv1.DeleteOrganizationRequest{Id: orgID}); err != nil {
		t.Errorf("an organization with revoked keys alone: %v", err)
	}
	_, err = admin.GetTeam(ctx, &ktmsv1.GetTeamRequest{Id: teamID})
	wantCode(t, "the team of a deleted organization", err, connect.CodeNotFound)
}

func TestAdmin_ExplainRouteSaysWhyEachModelIsDropped(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx := t.Context()
	off := servertest.Model("off", "http://127.0.0.1:1")
	off.Enabled = false
	blind := servertest.Model("blind", "http://127.0.0.1:1")
	seeing := servertest.Model("seeing", "http://127.0.0.1:1")
	seeing.Capabilities = []string{"vision"}
	s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{off, blind, seeing}})
	unspoken := &ktmsv1.ModelSpec{Id: "unspoken", Vendor: "typesafe", Enabled: true, Capabilities: []string{"vision"}}
	if _, err := s.Admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: unspoken}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.SetVendorKey(ctx, &ktmsv1.SetVendorKeyRequest{ApiKeyName: "client", Vendor: "typesafe", PlainKey: "secret"}); err != nil {
		t.Fatal(err)
	}
	keyless := &ktmsv1.ModelSpec{Id: "keyless", Vendor: "groq", Enabled: true}
	if _, err := s.Admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: keyless}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.ReplaceRules(ctx, &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{
		{Name: "all", Priority: 1, Use: []string{"off", "unspoken", "keyless", "blind", "seeing"}, Enabled: true}}}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Admin.ExplainRoute(ctx, &ktmsv1.ExplainRouteRequest{ApiKeyName: "client", Effort: ktmsv1.Effort_EFFORT_HIGH, Needs: []string{"vision"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range r.GetCandidates() {
		got = append(got, c.GetModel()+":"+c.GetReason())
	}
	if want := []string{"off:disabled", "unspoken:vendor_not_spoken", "keyless:no_vendor_key", "blind:capability", "seeing:"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	r, err = s.Admin.ExplainRoute(ctx, &ktmsv1.ExplainRouteRequest{ApiKeyName: "client", AutoRoute: true, Placement: "nodes_only"})
	if err != nil || r.GetErrorReason() != "no_capable_model" || r.GetRouteMode() != "auto-default" || r.GetEffort() != ktmsv1.Effort_EFFORT_MEDIUM {
		t.Errorf("an explained refusal: %v, %v", r, err)
	}
}

func TestAdmin_RotateEncryption(t *testing.T) {
	upstream := scripted(t, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	st := servertest.SQLite(t)
	first := seal.GenerateKeyring()
	second := strings.Replace(seal.GenerateKeyring(), "1:", "2:", 1)
	start := func(keyring string) (*servertest.Instance, error) {
		parsed, err := seal.ParseKeyring(keyring)
		if err != nil {
			t.Fatal(err)
		}
		options := servertest.Defaults(t)
		options.Store, options.Sealer = st, parsed
		if _, err := server.New(t.Context(), options); err != nil {
			return nil, err
		}
		options.Metrics = server.NewMetrics()
		return servertest.Start(t, options), nil
	}
	old, err := start(first)
	if err != nil {
		t.Fatal(err)
	}
	key := old.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", upstream)}})

	if _, err := start(second); err == nil || !strings.Contains(err.Error(), "keyring") {
		t.Fatalf("a keyring that opens nothing must be refused in plain words, got %v", err)
	}
	both, err := start(first + "," + second)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{1, 0} {
		r, err := both.Admin.RotateEncryption(t.Context(), &ktmsv1.RotateEncryptionRequest{})
		if err != nil || r.GetVendorKeysChanged() != want || r.GetKeyVersion() != 2 {
			t.Fatalf("RotateEncryption: %v, %v; want %d changed", r, err, want)
		}
	}
	alone, err := start(second)
	if err != nil {
		t.Fatalf("the old version must be free to go: %v", err)
	}
	if _, err := ktmsv1connect.NewGatewayServiceClient(alone.Client(t, key)).GenerateText(t.Context(), lowRequest); err != nil {
		t.Errorf("a call with the re-sealed credential: %v", err)
	}
}

func TestAdmin_AnUnreadableCredentialSkipsThatVendorForThatClient(t *testing.T) {
	upstream := scripted(t, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	st := servertest.SQLite(t)
	one, two := seal.GenerateKeyring(), strings.Replace(seal.GenerateKeyring(), "1:", "2:", 1)
	start := func(keyring string) *servertest.Instance {
		parsed, err := seal.ParseKeyring(keyring)
		if err != nil {
			t.Fatal(err)
		}
		options := servertest.Defaults(t)
		options.Store, options.Sealer = st, parsed
		return servertest.Start(t, options)
	}
	old := start(one)
	oldKey := old.Configure(t, servertest.Setup{Key: "old", Models: []*ktmsv1.ModelSpec{servertest.Model("m", upstream)}})
	newer := start(one + "," + two)
	minted, err := newer.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "new", Scopes: []string{"generate"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newer.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: "new", Vendor: "openai", PlainKey: "sk-new"}); err != nil {
		t.Fatal(err)
	}
	lagging := start(one) // a replica that still has the old keyring
	_, err = ktmsv1connect.NewGatewayServiceClient(lagging.Client(t, minted.GetPlainKey())).GenerateText(t.Context(), lowRequest)
	wantCode(t, "the client whose credential cannot be opened", err, connect.CodeFailedPrecondition, "no_vendor_key")
	if _, err := ktmsv1connect.NewGatewayServiceClient(lagging.Client(t, oldKey)).GenerateText(t.Context(), lowRequest); err != nil {
		t.Errorf("the other client: %v", err)
	}
	counted := metric(t, lagging, "ktms_dependency_errors_total", "keyring")
	if counted != 1 {
		t.Errorf("unreadable credentials counted: %v, want 1", counted)
	}
}

func TestAdmin_WhatIsNotBuiltSaysSo(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, servertest.AdminKey))
	_, err := client.Judge(t.Context(), &ktmsv1.JudgeRequest{})
	wantCode(t, "Judge", err, connect.CodeUnimplemented)
}

func TestAdmin_ModelsSurviveTheStore(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	want := &ktmsv1.ModelSpec{Id: "gemini-2.5-flash", Vendor: "google", Efforts: []ktmsv1.Effort{1, 2}, Capabilities: []string{"google_search"},
		Rpm: 600, RpmBurst: -1, PriceInPerMtok: 0.3, PriceOutPerMtok: 2.5, PriceCacheReadPerMtok: 0.075, DailyTokensPerKey: 50_000_000,
		DailyTokensPerUser: 500_000, QueueTimeoutMs: 2000, Enabled: true,
		PriceTiers: []*ktmsv1.PriceTier{{AbovePromptTokens: 200_000, PriceInPerMtok: 0.6}}}
	if _, err := s.Admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: want}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Admin.ListModels(t.Context(), &ktmsv1.AdminServiceListModelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := list.GetModels(); len(got) != 1 || protojson.Format(got[0]) != protojson.Format(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAdmin_WhatCouldOnlyHarmIsRefused(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", "http://127.0.0.1:1")}})
	for _, price := range []float64{math.Inf(1), math.NaN(), -1, 1e9} {
		spec := servertest.Model("m", "http://127.0.0.1:1")
		spec.PriceInPerMtok = price
		_, err := s.Admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: spec})
		wantCode(t, fmt.Sprint("a price of ", price), err, connect.CodeInvalidArgument, "price_in_per_mtok")
	}
	for _, plain := range []string{"", "sk\r\nX: 1", "sk-1\n", " sk-1", "sk-ключ"} {
		_, err := s.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: "client", Vendor: "openai", PlainKey: plain})
		wantCode(t, fmt.Sprintf("the credential %q", plain), err, connect.CodeInvalidArgument, "plain_key")
	}
	_, err := s.Admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{
		{Name: "a", Priority: 1, Use: []string{"m"}, ShadowModel: "m", ShadowPercentage: 5, Enabled: true}}})
	wantCode(t, "shadow traffic", err, connect.CodeUnimplemented, "rules[0]")
	list, err := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key)).ListModels(t.Context(), &ktmsv1.ListModelsRequest{})
	if err != nil || len(list.GetModels()) != 1 || list.GetModels()[0].GetEndpoint() != "" {
		t.Errorf("a client must not see where a model is: %v, %v", list, err)
	}
	if all, err := s.Admin.ListModels(t.Context(), &ktmsv1.AdminServiceListModelsRequest{}); err != nil || all.GetModels()[0].GetEndpoint() == "" {
		t.Errorf("an admin must: %v, %v", all, err)
	}
}

func TestAdmin_ExplainRouteSaysWhatACallDoes(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	up := scripted(t, okAnswer)
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", up), servertest.Model("n", up)},
		Rules: []*ktmsv1.RuleSpec{{Name: "high", Priority: 2, Effort: ktmsv1.Effort_EFFORT_HIGH, Use: []string{"n"}, Enabled: true},
			{Name: "rest", Priority: 1, Use: []string{"m"}, Enabled: true}}})
	client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key))
	for _, model := range []string{"", "m"} {
		for _, auto := range []bool{false, true} {
			for _, specified := range []bool{false, true} {
				for _, effort := range []ktmsv1.Effort{0, ktmsv1.Effort_EFFORT_LOW, ktmsv1.Effort_EFFORT_HIGH} {
					called, err := client.GenerateText(t.Context(), &ktmsv1.GenerateTextRequest{Effort: effort, ModelOverride: model,
						AutoRoute: auto, EffortSpecified: specified, Messages: lowRequest.GetMessages()})
					told, explainErr := s.Admin.ExplainRoute(t.Context(), &ktmsv1.ExplainRouteRequest{ApiKeyName: "client", Effort: effort,
						ModelOverride: model, AutoRoute: auto, EffortSpecified: specified})
					if connect.CodeOf(err) != connect.CodeOf(explainErr) || called.GetMatchedRule() != told.GetMatchedRule() ||
						called.GetRouteMode() != told.GetRouteMode() {
						t.Errorf("model %q, auto %v, specified %v, %v: the call took %q (%s, %v), ExplainRoute says %q (%s, %v)", model, auto,
							specified, effort, called.GetMatchedRule(), called.GetRouteMode(), err, told.GetMatchedRule(), told.GetRouteMode(), explainErr)
					}
				}
			}
		}
	}
}
