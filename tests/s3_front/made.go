// Very many objects that nobody has stored: what /-/made?objects=1000000 asks for is below the prefix `in` of the bucket `made`, each a line of JSON.
// Listed in pages of a thousand, as Amazon's store does, and read by ranges.
package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	madeBucket = "/made"
	madePrefix = "in/"
	madePage   = 1000
)

var madeAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func isMade(r *http.Request) bool {
	return r.URL.Path == madeBucket || strings.HasPrefix(r.URL.Path, madeBucket+"/")
}

func madeObject(number int) (string, []byte) {
	content := []byte(fmt.Sprintf("{\"id\": \"made-%d\"}\n", number))
	return fmt.Sprintf("%spart-%09d.json", madePrefix, number), content
}

func madeTag(number int) string {
	return fmt.Sprintf("\"%032x\"", number)
}

func made(w http.ResponseWriter, r *http.Request, objects int) {
	if r.URL.Query().Has("list-type") {
		madeList(w, r, objects)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, madeBucket+"/"+madePrefix)
	number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "part-"), ".json"))
	if err != nil || number >= objects || r.Method != "GET" && r.Method != "HEAD" {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	_, content := madeObject(number)
	w.Header().Set("ETag", madeTag(number))
	http.ServeContent(w, r, "", madeAt, bytes.NewReader(content))
}

// The number of the first object of the next page is the token of a page.
func madeList(w http.ResponseWriter, r *http.Request, objects int) {
	asked := r.URL.Query()
	first, _ := strconv.Atoi(asked.Get("continuation-token"))
	end := min(first+madePage, objects)
	if asked.Get("prefix") != madePrefix {
		first, end = objects, objects
	}
	page := &bytes.Buffer{}
	fmt.Fprintf(page, "<ListBucketResult><Name>made</Name><Prefix>%s</Prefix><KeyCount>%d</KeyCount><MaxKeys>%d</MaxKeys>", asked.Get("prefix"), end-first, madePage)
	fmt.Fprintf(page, "<IsTruncated>%t</IsTruncated>", end < objects)
	if end < objects {
		fmt.Fprintf(page, "<NextContinuationToken>%d</NextContinuationToken>", end)
	}
	for number := first; number < end; number++ {
		key, content := madeObject(number)
		fmt.Fprintf(page, "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>",
			key, madeAt.Format("2006-01-02T15:04:05.000Z"), strings.Trim(madeTag(number), "\""), len(content))
	}
	page.WriteString("</ListBucketResult>")
	w.Header().Set("Content-Type", "application/xml")
	w.Write(page.Bytes())
}
