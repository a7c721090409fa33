// A GCS for tests: fake-gcs-server, which speaks Google's JSON API, and before it the part of the XML API that obstore and delta-rs speak.
//
// What is a condition here is one of fake-gcs-server: a PUT with x-goog-if-generation-match is its upload with ifGenerationMatch. A GET on
// condition of an ETag is answered with what has that ETag, or with 412. Uploads in parts are not there.
package main

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type server struct{ behind http.Handler }

type object struct {
	Name, Size, Updated, Etag, Generation string
}

type contents struct {
	Key, Size, LastModified, ETag string
}

type prefix struct{ Prefix string }

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Contents              []contents
	CommonPrefixes        []prefix
	NextContinuationToken string `xml:",omitempty"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to answer")
	flag.Parse()
	made, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, Scheme: "http", PublicHost: *listen})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*listen, server{made.HTTPHandler()}))
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if json := []string{"/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/", "/upload/resumable/", "/batch/"}; starts(r.URL.Path, json) {
		s.behind.ServeHTTP(w, r)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if s.ask(http.MethodGet, "/storage/v1/b/"+bucket, nil, nil).Code != http.StatusOK {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	switch {
	case key == "" && r.Method == http.MethodGet:
		s.list(w, r, bucket)
	case r.Method == http.MethodPut:
		s.put(w, r, bucket, key)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(w, r)
	case r.Method == http.MethodDelete:
		s.remove(w, bucket, key)
	default:
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	}
}

func (s server) put(w http.ResponseWriter, r *http.Request, bucket, key string) {
	asked := url.Values{"uploadType": {"media"}, "name": {key}}
	if generation := r.Header.Get("X-Goog-If-Generation-Match"); generation != "" {
		asked.Set("ifGenerationMatch", generation)
	}
	told := s.ask(http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o", asked, r.Body)
	if told.Code != http.StatusOK {
		code := map[int]string{http.StatusPreconditionFailed: "PreconditionFailed"}[told.Code]
		refuse(w, told.Code, code)
		return
	}
	var made object
	if err := json.Unmarshal(told.Body.Bytes(), &made); err != nil {
		log.Fatal(err)
	}
	w.Header().Set("ETag", `"`+made.Etag+`"`)
	w.Header().Set("X-Goog-Generation", made.Generation)
}

func (s server) get(w http.ResponseWriter, r *http.Request) {
	told := httptest.NewRecorder()
	s.behind.ServeHTTP(told, r)
	if told.Code == http.StatusNotFound {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if wanted := r.Header.Get("If-Match"); wanted != "" && wanted != told.Header().Get("ETag") {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	for name, values := range told.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(told.Code)
	_, _ = w.Write(told.Body.Bytes())
}

func (s server) remove(w http.ResponseWriter, bucket, key string) {
	told := s.ask(http.MethodDelete, "/storage/v1/b/"+bucket+"/o/"+url.PathEscape(key), nil, nil)
	if told.Code == http.StatusNotFound {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s server) list(w http.ResponseWriter, r *http.Request, bucket string) {
	given, asked := r.URL.Query(), url.Values{}
	for theirs, ours := range map[string]string{"prefix": "prefix", "delimiter": "delimiter", "max-keys": "maxResults", "continuation-token": "pageToken", "start-after": "startOffset"} {
		if given.Get(theirs) != "" {
			asked.Set(ours, given.Get(theirs))
		}
	}
	var found struct {
		Items         []object
		Prefixes      []string
		NextPageToken string
	}
	told := s.ask(http.MethodGet, "/storage/v1/b/"+bucket+"/o", asked, nil)
	if err := json.Unmarshal(told.Body.Bytes(), &found); err != nil {
		log.Fatal(err)
	}
	page := listing{NextContinuationToken: found.NextPageToken}
	for _, one := range found.Items {
		page.Contents = append(page.Contents, contents{one.Name, one.Size, one.Updated, `"` + one.Etag + `"`})
	}
	for _, one := range found.Prefixes {
		page.CommonPrefixes = append(page.CommonPrefixes, prefix{one})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(page)
}

func (s server) ask(method, path string, asked url.Values, body io.Reader) *httptest.ResponseRecorder {
	told := httptest.NewRecorder()
	s.behind.ServeHTTP(told, httptest.NewRequest(method, path+"?"+asked.Encode(), body))
	return told
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>"+code+"</Code></Error>")
}

func starts(path string, with []string) bool {
	for _, one := range with {
		if strings.HasPrefix(path, one) {
			return true
		}
	}
	return false
}
