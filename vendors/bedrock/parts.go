package bedrock

import (
	"encoding/base64"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// place is where parts stand: the vendor takes not every kind everywhere.
type place int

const (
	everywhere place = iota
	inResults        // text, images and documents
	onlyText
)

// part writes a part, and the cache point behind it. It returns nothing for what says nothing.
func (e *encoder) part(path string, p *ktmsv1.ContentPart, takes place) []types.ContentBlock {
	var out []types.ContentBlock
	add := func(block types.ContentBlock, only place) {
		if takes > only {
			e.Refuse(path, "it cannot stand in a turn of this role")
		} else if block != nil {
			out = append(out, block)
		}
	}
	switch part := p.GetPart().(type) {
	case *ktmsv1.ContentPart_Text:
		if e.Carries(vendors.PartText, !blank(part.Text)) {
			add(&types.ContentBlockMemberText{Value: part.Text}, onlyText)
		}
	case *ktmsv1.ContentPart_Refusal:
		if e.Carries(vendors.PartRefusal, !blank(part.Refusal)) {
			add(&types.ContentBlockMemberText{Value: part.Refusal}, onlyText)
		}
	case *ktmsv1.ContentPart_Image:
		add(e.image(path, part.Image), inResults)
	case *ktmsv1.ContentPart_Document:
		add(e.document(path, part.Document), inResults)
	case *ktmsv1.ContentPart_Audio:
		if e.Carries(vendors.PartAudio, true) {
			add(e.audio(part.Audio), everywhere)
		}
	case *ktmsv1.ContentPart_Embedding:
		e.Carries(vendors.PartEmbedding, true)
	case *ktmsv1.ContentPart_RawJson:
		e.Carries(vendors.PartRaw, true)
	default:
		e.Wrong(path, "is empty")
	}
	point, _ := e.extras(path, p.GetExtraJson())
	return e.withPoint(out, point)
}

// source is what a part holds: bytes with their media type.
type source struct {
	data      []byte
	mediaType string
}

// linked reads the data of a URL that holds it itself. The vendor follows no other but s3: ones, and reads those with the
// operator's credential: a caller who may name them may read the operator's objects.
func (e *encoder) linked(f vendors.Field, path, address string) (source, bool) {
	rest, isData := strings.CutPrefix(address, "data:")
	if !isData {
		e.Refuse(f.Param(), "this vendor fetches nothing for a caller; send the bytes or a data: URL")
		return source{}, false
	}
	head, body, complete := strings.Cut(rest, ",")
	if !complete {
		e.Wrong(path, "is not a data: URL")
		return source{}, false
	}
	plain, err := url.PathUnescape(body)
	if err != nil {
		e.Wrong(path, "is not a data: URL: its percent-encoding is wrong")
		return source{}, false
	}
	head, encoded := strings.CutSuffix(head, ";base64")
	if !encoded {
		return source{data: []byte(plain), mediaType: head}, true
	}
	// Both alphabets are in use, with and without padding.
	plain = strings.TrimRight(strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(plain), "=")
	data, err := base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		data, err = base64.RawURLEncoding.DecodeString(plain)
	}
	if err != nil {
		e.Wrong(path, "is not a data: URL: its base64 is wrong")
		return source{}, false
	}
	return source{data: data, mediaType: head}, true
}

// plainType is the media type of a source, told from its bytes where nobody said it.
func (s source) plainType() string {
	said := s.mediaType
	if said == "" || said == "application/octet-stream" {
		said = http.DetectContentType(s.data)
	}
	plain, _, err := mime.ParseMediaType(said)
	if err != nil {
		plain, _, _ = strings.Cut(said, ";")
	}
	return strings.ToLower(strings.TrimSpace(plain))
}

var imageFormats = map[string]types.ImageFormat{
	"image/png": types.ImageFormatPng, "image/jpeg": types.ImageFormatJpeg, "image/jpg": types.ImageFormatJpeg,
	"image/gif": types.ImageFormatGif, "image/webp": types.ImageFormatWebp,
}

func (e *encoder) image(path string, i *ktmsv1.ImagePart) types.ContentBlock {
	from := source{data: i.GetData(), mediaType: i.GetMimeType()}
	if address := i.GetUrl(); address != "" {
		var ok bool
		if from, ok = e.linked(vendors.PartImageURL, path+".image.url", address); !ok {
			return nil
		}
	}
	if !e.Carries(vendors.PartImageData, true) {
		return nil
	}
	e.Carries(vendors.PartImageDetail, i.GetDetail() != "" && i.GetDetail() != "auto")
	block := types.ImageBlock{Format: imageFormats[from.plainType()], Source: &types.ImageSourceMemberBytes{Value: from.data}}
	if block.Format == "" {
		e.Refuse(vendors.PartImageData.Param(), "this vendor takes png, jpeg, gif and webp")
		return nil
	}
	return &types.ContentBlockMemberImage{Value: block}
}

// audioFormats are spellings of containers that differ from the vendor's.
var audioFormats = map[string]types.AudioFormat{
	"audio/mpeg": types.AudioFormatMp3, "audio/wave": types.AudioFormatWav, "application/ogg": types.AudioFormatOgg,
	"video/webm": types.AudioFormatWebm, "video/mp4": types.AudioFormatMp4, "pcm16": types.AudioFormatPcm,
}

func (e *encoder) audio(a *ktmsv1.AudioPart) types.ContentBlock {
	said := strings.ToLower(a.GetFormat())
	if said == "" {
		said = source{data: a.GetData()}.plainType()
	}
	format := types.AudioFormat(said)
	if other, ok := audioFormats[said]; ok {
		format = other
	}
	if !slices.Contains(format.Values(), format) {
		e.Refuse(vendors.PartAudio.Param(), "this vendor takes wav, mp3, flac, opus, ogg, m4a and webm")
		return nil
	}
	return &types.ContentBlockMemberAudio{Value: types.AudioBlock{
		Format: format, Source: &types.AudioSourceMemberBytes{Value: a.GetData()},
	}}
}

var documentFormats = map[string]types.DocumentFormat{
	"application/pdf": types.DocumentFormatPdf, "text/csv": types.DocumentFormatCsv, "application/msword": types.DocumentFormatDoc,
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document": types.DocumentFormatDocx,
	"application/vnd.ms-excel": types.DocumentFormatXls,
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": types.DocumentFormatXlsx,
	"text/html": types.DocumentFormatHtml, "text/plain": types.DocumentFormatTxt, "text/markdown": types.DocumentFormatMd,
	"text/x-markdown": types.DocumentFormatMd,
}

// documentFormat is told from the media type if it says enough, from the name otherwise, and from the bytes at last.
func documentFormat(from source, name string) types.DocumentFormat {
	kind := from.plainType()
	format := documentFormats[kind]
	if from.mediaType != "" && format != "" && format != types.DocumentFormatTxt {
		return format
	}
	extension := strings.TrimPrefix(strings.ToLower(path.Ext(name)), ".")
	if extension == "htm" {
		extension = "html"
	}
	if named := types.DocumentFormat(extension); slices.Contains(named.Values(), named) {
		return named
	}
	if format == "" && strings.HasPrefix(kind, "text/") {
		return types.DocumentFormatTxt
	}
	return format
}

func (e *encoder) document(path string, d *ktmsv1.DocumentPart) types.ContentBlock {
	if d.GetFileId() != "" {
		e.Carries(vendors.PartDocumentFile, true)
		return nil
	}
	from := source{data: d.GetData(), mediaType: d.GetMimeType()}
	name := d.GetFilename()
	if address := d.GetUrl(); address != "" {
		var ok bool
		if from, ok = e.linked(vendors.PartDocumentURL, path+".document.url", address); !ok {
			return nil
		}
		if from.mediaType == "" {
			from.mediaType = d.GetMimeType()
		}
	}
	if !e.Carries(vendors.PartDocumentData, true) {
		return nil
	}
	format := documentFormat(from, name)
	if format == "" {
		e.Refuse(vendors.PartDocumentData.Param(), "this vendor takes pdf, csv, doc, docx, xls, xlsx, html, txt and md")
		return nil
	}
	e.Carries(vendors.PartDocumentName, d.GetFilename() != "")
	block := types.DocumentBlock{Format: format, Name: new(e.documentName(name)), Source: &types.DocumentSourceMemberBytes{Value: from.data}}
	return &types.ContentBlockMemberDocument{Value: block}
}

// maxDocumentName is the vendor's limit, less the room for a number.
const maxDocumentName = 190

var (
	outsideName = regexp.MustCompile(`[^a-zA-Z0-9\-()\[\] ]+`)
	spaces      = regexp.MustCompile(` {2,}`)
)

// documentName writes a name in the characters that the vendor takes, and makes it the only one of its kind.
func (e *encoder) documentName(name string) string {
	name = strings.TrimSuffix(name, path.Ext(name))
	name = strings.TrimSpace(spaces.ReplaceAllString(outsideName.ReplaceAllString(name, " "), " "))
	if len(name) > maxDocumentName {
		name = strings.TrimSpace(name[:maxDocumentName])
	}
	if name == "" {
		name = "document"
	}
	unique := name
	for e.documents[unique] {
		e.copies[name]++
		unique = name + " " + strconv.Itoa(e.copies[name]+1)
	}
	e.documents[unique] = true
	return unique
}
