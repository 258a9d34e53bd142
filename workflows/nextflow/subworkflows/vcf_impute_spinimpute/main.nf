include { SPINIMPUTE_IMPUTE } from '../../modules/spinimpute/impute'
include { SPINIMPUTE_LIGATE } from '../../modules/spinimpute/ligate'

// The channels of nf-core/phaseimpute's other imputation subworkflows.
workflow VCF_IMPUTE_SPINIMPUTE {
    take:
    ch_input   // channel (mandatory): [ [id], vcf, index ]
    ch_panel   // channel (mandatory): [ [panel, chr], spin or vcf, index ]
    ch_posfile // channel (ignored)  : [ [panel, chr], sites, index ]; the panel has its sites
    ch_chunks  // channel (mandatory): [ [panel, chr], region ]; chr alone for all of it
    ch_map     // channel (mandatory): [ [panel, chr], map ]; [] for none

    main:
    ch_counts = ch_chunks
        .groupTuple()
        .map { metaPC, regions -> [metaPC, regions.size()] }

    ch_regions = ch_panel
        .combine(ch_chunks, by: 0)
        .combine(ch_map, by: 0)
        .combine(ch_counts, by: 0)

    ch_regions.ifEmpty {
        error("ERROR: no [panel, chr] is in all of ch_panel, ch_chunks and ch_map.")
    }

    ch_impute = ch_input
        .combine(ch_regions)
        .map { metaI, vcf, index, metaPC, panel, _panel_index, region, map, n_regions ->
            [metaPC + metaI + [region: region, n_regions: n_regions], vcf, index, panel, map, region]
        }

    SPINIMPUTE_IMPUTE(ch_impute)

    ch_ligate = SPINIMPUTE_IMPUTE.out.vcf
        .join(SPINIMPUTE_IMPUTE.out.index, failOnMismatch: true, failOnDuplicate: true)
        .map { meta, vcf, index ->
            [groupKey(meta.subMap(meta.keySet() - ['region', 'n_regions']), meta.n_regions), vcf, index]
        }
        .groupTuple()
        .map { key, vcfs, indexes -> [key.getGroupTarget(), vcfs, indexes] }

    SPINIMPUTE_LIGATE(ch_ligate)

    emit:
    vcf_index = SPINIMPUTE_LIGATE.out.vcf_index // channel: [ [id, panel, chr], vcf, index ]
    multiqc   = SPINIMPUTE_IMPUTE.out.multiqc   // channel: [ [id, panel, chr, region, n_regions], json ]
}
